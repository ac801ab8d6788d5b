# expects: leave the warm-up out
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {name: [] for name in steps}
    for _ in range(warmup + rounds):
        for name, step in steps.items():
            synchronise()
            started = clock()
            step()
            synchronise()
            seconds[name].append(clock() - started)
    return seconds
