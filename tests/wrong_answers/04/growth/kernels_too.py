# expects: rows that are not operators
def growth(before, after, steps):
    own = [table.set_index("name")["self_cuda_us"] for table in (before, after)]
    return ((own[1] - own[0]) / 1e3 / steps).dropna().to_dict()
