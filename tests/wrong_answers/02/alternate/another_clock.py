# expects: call the argument `clock`
def alternate(steps, rounds, warmup, synchronise, clock):
    seconds = {name: [] for name in steps}
    for turn in range(warmup + rounds):
        for name, step in steps.items():
            synchronise()
            started = time.perf_counter()
            step()
            synchronise()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - started)
    return seconds
