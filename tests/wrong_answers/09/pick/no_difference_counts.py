# expects: channels_last is a guess
def pick(table, memory_bytes):
    good = table[table["verdict"].isin(["faster", "no difference"]) & (table["peak_bytes"] <= memory_bytes)]
    return good["times_faster"].idxmax() if len(good) else table.index[0]
