# expects: divide `share` by `factor`
def amdahl(share, factor):
    return factor / (factor * (1 - share) + share)
