# expects: That is the total time
def growth(before, after, steps):
    operators = [table[table["name"].str.startswith("aten::")].set_index("name") for table in (before, after)]
    return ((operators[1] - operators[0])["cuda_total_us"] / 1e3 / steps).dropna().to_dict()
