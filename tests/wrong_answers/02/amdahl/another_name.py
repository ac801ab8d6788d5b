# expects: name 's' is not defined
def amdahl(share, factor):
    return 1 / ((1 - s) + s / factor)
