# expects: how many pictures are those
def positions(k, batch_size, rank, ranks):
    each = batch_size // ranks
    first = k * batch_size + rank
    return range(first, first + each)
