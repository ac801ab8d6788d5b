# expects: your answer calls the library's own labtrace.events.intervals.Union
from labtrace.events.intervals import Union


def busy(begin, end):
    covered = Union(begin, end)
    return float((covered.end - covered.begin).sum())
