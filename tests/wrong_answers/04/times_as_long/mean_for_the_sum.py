# expects: ratio of the mean durations
def times_as_long(one, two):
    def wall(kernels):
        return kernels["end"].max() - kernels["begin"].min()

    mean = (two["end"] - two["begin"]).mean() / (one["end"] - one["begin"]).mean()
    return {"sum": mean, "wall": wall(two) / wall(one)}
