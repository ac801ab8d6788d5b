# expects: it computes something else
def pick(table, memory_bytes):
    return table["times_faster"].idxmax()
