# expects: the parts follow each other
def positions(k, batch_size, rank, ranks):
    return range(k * batch_size + rank, (k + 1) * batch_size, ranks)
