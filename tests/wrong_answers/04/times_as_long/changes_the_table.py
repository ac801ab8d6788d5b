# expects: the table you were given was changed
def times_as_long(one, two):
    def totals(kernels):
        kernels["duration"] = kernels["end"] - kernels["begin"]
        return {"sum": kernels["duration"].sum(), "wall": kernels["end"].max() - kernels["begin"].min()}

    before, after = totals(one), totals(two)
    return {name: after[name] / before[name] for name in before}
