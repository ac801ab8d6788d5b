"""Training: the loop, checkpoints, translation."""
