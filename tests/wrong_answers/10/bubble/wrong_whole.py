# expects: When is the last stage done
def bubble(stages, micro_batches):
    return (stages - 1) / (micro_batches + stages)
