# expects: not at 0
def hta_wall(launched, begin, end, steps):
    return end[launched < max(steps)].max()
