# expects: memory that is not known
def pick(table, memory_bytes):
    good = table[(table["verdict"] == "faster") & (table["peak_bytes"] <= memory_bytes)]
    return good["times_faster"].idxmax() if len(good) else table.index[0]
