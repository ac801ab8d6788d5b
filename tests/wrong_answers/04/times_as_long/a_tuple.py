# expects: not a tuple of 2 values
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["end"] - kernels["begin"]
        return {"sum": durations.sum(), "wall": kernels["end"].max() - kernels["begin"].min()}

    before, after = totals(one), totals(two)
    return after["sum"] / before["sum"], after["wall"] / before["wall"]
