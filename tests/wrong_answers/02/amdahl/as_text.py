# expects: a number is expected, not a word
def amdahl(share, factor):
    return f"{1 / ((1 - share) + share / factor):.2f} times"
