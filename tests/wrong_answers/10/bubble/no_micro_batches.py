# expects: The micro-batches count
def bubble(stages, micro_batches):
    return (stages - 1) / stages
