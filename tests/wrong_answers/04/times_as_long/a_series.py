# expects: not a Series.
def times_as_long(one, two):
    def totals(kernels):
        durations = kernels["end"] - kernels["begin"]
        return pd.Series({"sum": durations.sum(), "wall": kernels["end"].max() - kernels["begin"].min()})

    return totals(two) / totals(one)
