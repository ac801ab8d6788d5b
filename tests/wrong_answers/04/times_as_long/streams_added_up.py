# expects: they passed at the same time
def times_as_long(one, two):
    totals = []
    for kernels in (one, two):
        streams = kernels.groupby("stream")
        wall = (streams["end"].max() - streams["begin"].min()).sum()
        totals.append({"sum": (kernels["end"] - kernels["begin"]).sum(), "wall": wall})
    return {name: totals[1][name] / totals[0][name] for name in ("sum", "wall")}
