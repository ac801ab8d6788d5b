# expects: do not round
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["end"] - kernels["begin"]
        return {"sum": durations.sum(), "wall": kernels["end"].max() - kernels["begin"].min()}

    before, after = totals(one), totals(two)
    return {name: round(after[name] / before[name], 1) for name in before}
