# expects: 0 steps old, not 1
def mean_age(exchange_every):
    return (exchange_every + 1) / 2
