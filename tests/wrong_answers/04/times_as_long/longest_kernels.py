# expects: the longest kernel
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["end"] - kernels["begin"]
        return {"sum": durations.sum(), "wall": durations.max()}

    before, after = totals(one), totals(two)
    return {name: after[name] / before[name] for name in before}
