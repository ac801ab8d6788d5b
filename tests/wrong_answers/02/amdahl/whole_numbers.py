# expects: do not round
def amdahl(share, factor):
    return round(1 / ((1 - share) + share / factor), 1)
