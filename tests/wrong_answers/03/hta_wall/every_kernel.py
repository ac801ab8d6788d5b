# expects: HTA leaves some of them out
def hta_wall(launched, begin, end, steps):
    return end.max() - begin.min()
