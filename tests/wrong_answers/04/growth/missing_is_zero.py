# expects: which one of the tables lacks
def growth(before, after, steps):
    own = [table[table["name"].str.startswith("aten::")].set_index("name")["self_cuda_us"] for table in (before, after)]
    return (own[1].sub(own[0], fill_value=0) / 1e3 / steps).to_dict()
