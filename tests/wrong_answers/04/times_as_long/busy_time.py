# expects: ratio of the unions
from labkit.traces.intervals import busy


def times_as_long(one, two):
    sums = [(kernels["end"] - kernels["begin"]).sum() for kernels in (one, two)]
    return {"sum": sums[1] / sums[0], "wall": busy(two["begin"], two["end"]) / busy(one["begin"], one["end"])}
