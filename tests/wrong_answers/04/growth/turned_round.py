# expects: The sign is turned round
def growth(before, after, steps):
    own = [table[table["name"].str.startswith("aten::")].set_index("name")["self_cuda_us"] for table in (before, after)]
    return ((own[0] - own[1]) / 1e3 / steps).dropna().to_dict()
