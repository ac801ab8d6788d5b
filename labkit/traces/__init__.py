"""A trace -> tables: the work of the GPU, its waits, and the work of the host at the same time."""
