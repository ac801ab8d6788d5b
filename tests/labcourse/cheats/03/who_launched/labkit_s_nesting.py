# expects: your answer calls the library's own labtrace.events.intervals.Nesting
from labtrace.events.intervals import Nesting


def who_launched(operators, calls, kernels):
    times = calls.set_index("correlation")["begin"][kernels["correlation"]]
    at = Nesting(operators["begin"], operators["end"]).at(times)
    return dict(zip(kernels["name"], operators["name"].to_numpy()[at]))
