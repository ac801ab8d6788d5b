# expects: how much longer does *one* step
def growth(before, after, steps):
    own = [table[table["name"].str.startswith("aten::")].set_index("name")["self_cuda_us"] for table in (before, after)]
    return ((own[1] - own[0]) / 1e3).dropna().to_dict()
