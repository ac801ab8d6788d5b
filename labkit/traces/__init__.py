"""A trace -> tables: what the GPU did, what it waited for, and what the host was doing meanwhile."""
