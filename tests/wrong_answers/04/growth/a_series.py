# expects: not a Series
def growth(before, after, steps):
    own = [table[table["name"].str.startswith("aten::")].set_index("name")["self_cuda_us"] for table in (before, after)]
    return ((own[1] - own[0]) / 1e3 / steps).dropna()
