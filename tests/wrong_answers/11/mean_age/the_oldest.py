# expects: the oldest they get
def mean_age(exchange_every):
    return exchange_every - 1
