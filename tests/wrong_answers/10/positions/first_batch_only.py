# expects: batch k begins later
def positions(k, batch_size, rank, ranks):
    each = batch_size // ranks
    return range(rank * each, (rank + 1) * each)
