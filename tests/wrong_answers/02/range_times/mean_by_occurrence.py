# expects: not by how often a range occurs
def range_times(events, steps):
    durations = {}
    for name, _, microseconds in events:
        durations.setdefault(name, []).append(microseconds / 1000)
    return {name: sum(times) / len(times) for name, times in durations.items()}
