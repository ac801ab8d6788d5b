# expects: the part that `share` names
def amdahl(share, factor):
    return 1 / (share + (1 - share) / factor)
