# expects: how far two exchanges are apart
def mean_age(exchange_every):
    return exchange_every
