# expects: negative
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {name: [] for name in steps}
    for turn in range(warmup + rounds):
        for name, step in steps.items():
            synchronise()
            started = clock()
            step()
            synchronise()
            if turn >= warmup:
                seconds[name].append(started - clock())
    return seconds
