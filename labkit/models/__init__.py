"""Models: networks, the players that learn in turn, and the losses each of them lowers."""
