# expects: when each range begins
def range_times(events, steps):
    total = {}
    for name, microseconds, _ in events:
        total[name] = total.get(name, 0) + microseconds
    return {name: microseconds / 1000 / steps for name, microseconds in total.items()}
