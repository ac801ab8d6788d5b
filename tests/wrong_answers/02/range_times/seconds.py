# expects: in seconds
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0) + microseconds
    return {name: microseconds / 1e6 / steps for name, microseconds in total.items()}
