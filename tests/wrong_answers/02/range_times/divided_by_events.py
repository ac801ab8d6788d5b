# expects: number of events
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0) + microseconds
    return {name: microseconds / 1000 / len(events) for name, microseconds in total.items()}
