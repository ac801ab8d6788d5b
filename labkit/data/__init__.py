"""Pictures of two domains, and the batches that training draws from them."""
