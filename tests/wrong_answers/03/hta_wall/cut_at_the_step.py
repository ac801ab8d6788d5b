# expects: counts whole
def hta_wall(launched, begin, end, steps):
    kept = launched < max(steps)
    return min(end[kept].max(), max(steps)) - begin[kept].min()
