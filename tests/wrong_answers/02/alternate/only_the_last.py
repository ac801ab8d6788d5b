# expects: append
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {}
    for turn in range(warmup + rounds):
        for name, step in steps.items():
            synchronise()
            started = clock()
            step()
            synchronise()
            if turn >= warmup:
                seconds[name] = clock() - started
    return seconds
