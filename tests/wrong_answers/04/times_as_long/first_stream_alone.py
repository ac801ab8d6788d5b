# expects: one of the two streams alone
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["end"] - kernels["begin"]
        return {"sum": durations.sum(), "wall": kernels["end"].max() - kernels["begin"].min()}

    two = two[two["stream"] == two["stream"].iloc[0]]
    before, after = totals(one), totals(two)
    return {name: after[name] / before[name] for name in before}
