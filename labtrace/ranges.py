"""The names of ranges in a recording. Here and not in `models`, since reading a recording needs no PyTorch."""

RANGE = "labkit: "  # begins the names of the ranges that a training step marks
