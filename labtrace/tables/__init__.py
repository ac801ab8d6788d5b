"""The tables of a rank, one subject a file."""
