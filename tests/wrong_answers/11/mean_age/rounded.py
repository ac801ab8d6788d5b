# expects: take the mean
def mean_age(exchange_every):
    return (exchange_every - 1) // 2
