# expects: less than that
def mean_age(exchange_every):
    return exchange_every / 2
