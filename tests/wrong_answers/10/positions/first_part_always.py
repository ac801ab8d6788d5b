# expects: where does the part of this rank begin
def positions(k, batch_size, rank, ranks):
    each = batch_size // ranks
    return range(k * batch_size, k * batch_size + each)
