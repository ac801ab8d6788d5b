# expects: does not wait before its first
def bubble(stages, micro_batches):
    return stages / (micro_batches + stages)
