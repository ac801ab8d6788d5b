# expects: HTA asks when they were launched
def hta_wall(launched, begin, end, steps):
    kept = begin < max(steps)
    return end[kept].max() - begin[kept].min()
