# expects: the share of the time that is saved
def amdahl(share, factor):
    return 1 - ((1 - share) + share / factor)
