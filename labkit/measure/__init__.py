"""Measuring: how long steps take, and against what."""
