# expects: difference of shares
def growth(before, after, steps):
    own = [table[table["name"].str.startswith("aten::")].set_index("name")["self_cuda_us"] for table in (before, after)]
    shares = [us / us.sum() for us in own]
    return (100 * (shares[1] - shares[0])).dropna().to_dict()
