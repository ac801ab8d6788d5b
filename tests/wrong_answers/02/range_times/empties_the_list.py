# expects: `events` was changed
def range_times(events, steps):
    total = {}
    while events:
        name, _, microseconds = events.pop(0)
        total[name] = total.get(name, 0) + microseconds
    return {name: microseconds / 1000 / steps for name, microseconds in total.items()}
