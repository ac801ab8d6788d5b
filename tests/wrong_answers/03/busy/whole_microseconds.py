# expects: between two whole microseconds
def busy(begin, end):
    covered = set()
    for first, last in zip(begin, end, strict=True):
        covered.update(range(int(first), int(last)))
    return float(len(covered))
