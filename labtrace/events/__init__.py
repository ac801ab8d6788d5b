"""From a file to the events of each rank, joined."""
