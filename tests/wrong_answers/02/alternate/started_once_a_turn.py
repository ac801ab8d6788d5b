# expects: of the steps before it
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {name: [] for name in steps}
    for turn in range(warmup + rounds):
        synchronise()
        started = clock()
        for name, step in steps.items():
            step()
            synchronise()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds
