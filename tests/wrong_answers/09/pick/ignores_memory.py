# expects: it holds more than the memory there is
def pick(table, memory_bytes):
    good = table[table["verdict"] == "faster"]
    return good["times_faster"].idxmax() if len(good) else table.index[0]
