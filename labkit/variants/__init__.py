"""The training step, and the speed-ups that can be stacked on it."""
