# expects: the rest of it is the bubble
def bubble(stages, micro_batches):
    return micro_batches / (micro_batches + stages - 1)
