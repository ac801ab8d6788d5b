# expects: your answer calls the library's own labtrace.events.intervals.levels
from labtrace.events.intervals import levels


def busy(begin, end):
    times, running = levels(begin, end)
    return float((np.diff(times) * (running[:-1] > 0)).sum()) if len(times) else 0.0
