# expects: one over it
def amdahl(share, factor):
    return (1 - share) + share / factor
