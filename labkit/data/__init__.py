"""Pictures of two domains, and the batches that training draws from them."""

from labkit.data.images import read_picture as read_picture
