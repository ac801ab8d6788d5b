"""Measuring: how long steps take, and against what."""

RANGE = "labkit: "  # what the names of labkit's own ranges begin with, in traces and tables
