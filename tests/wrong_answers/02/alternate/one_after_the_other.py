# expects: take the steps in turn
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {name: [] for name in steps}
    for name, step in steps.items():
        for turn in range(warmup + rounds):
            synchronise()
            started = clock()
            step()
            synchronise()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds
