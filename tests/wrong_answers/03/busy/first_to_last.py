# expects: from the first begin to the last end
def busy(begin, end):
    return float(end.max() - begin.min()) if len(begin) else 0.0
