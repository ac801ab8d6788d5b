"""Sentences on a recording: its faults, the causes of its time, what bounds it, what changed since another one."""
