# expects: ratio of the sums
def times_as_long(one, two):
    ratio = (two["end"] - two["begin"]).sum() / (one["end"] - one["begin"]).sum()
    return {"sum": ratio, "wall": ratio}
