# expects: nothing that is faster fits
def pick(table, memory_bytes):
    return table[(table["verdict"] == "faster") & (table["peak_bytes"] <= memory_bytes)]["times_faster"].idxmax()
