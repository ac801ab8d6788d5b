# expects: match whole names
def growth(before, after, steps):
    def us(table, name):
        return table.loc[table["name"].str.startswith(name), "self_cuda_us"].sum()

    both = [name for name in before["name"] if name.startswith("aten::") and name in set(after["name"])]
    return {name: (us(after, name) - us(before, name)) / 1e3 / steps for name in both}
