# expects: not None
def times_as_long(one, two):
    print((two["end"].max() - two["begin"].min()) / (one["end"].max() - one["begin"].min()))
