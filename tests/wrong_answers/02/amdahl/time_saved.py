# expects: one over the time saved
def amdahl(share, factor):
    return 1 / (share - share / factor)
