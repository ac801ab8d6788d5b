# expects: the columns are
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["duration"]
        return {"sum": durations.sum(), "wall": kernels["end"].max() - kernels["begin"].min()}

    before, after = totals(one), totals(two)
    return {name: after[name] / before[name] for name in before}
