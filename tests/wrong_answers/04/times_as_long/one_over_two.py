# expects: divide the time of two streams by that of one
def times_as_long(one, two):
    def totals(kernels):
        wall = kernels["end"].max() - kernels["begin"].min()
        return {"sum": (kernels["end"] - kernels["begin"]).sum(), "wall": wall}

    first, second = totals(one), totals(two)
    return {name: first[name] / second[name] for name in first}
