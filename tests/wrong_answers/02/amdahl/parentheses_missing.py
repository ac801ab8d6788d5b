# expects: in parentheses
def amdahl(share, factor):
    return 1 / (1 - share) + share / factor
