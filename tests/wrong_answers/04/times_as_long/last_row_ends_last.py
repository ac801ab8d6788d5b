# expects: take max()
def times_as_long(one, two):
    def totals(kernels):
        wall = kernels["end"].iloc[-1] - kernels["begin"].iloc[0]
        return {"sum": (kernels["end"] - kernels["begin"]).sum(), "wall": wall}

    first, second = totals(one), totals(two)
    return {name: second[name] / first[name] for name in first}
