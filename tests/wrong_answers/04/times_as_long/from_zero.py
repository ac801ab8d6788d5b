# expects: neither table begins at 0
def times_as_long(one, two):
    sums = [(kernels["end"] - kernels["begin"]).sum() for kernels in (one, two)]
    return {"sum": sums[1] / sums[0], "wall": two["end"].max() / one["end"].max()}
