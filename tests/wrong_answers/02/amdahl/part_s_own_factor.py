# expects: the rest of the step takes as long as before
def amdahl(share, factor):
    return factor
