# expects: divide by the whole time
def bubble(stages, micro_batches):
    return (stages - 1) / micro_batches
