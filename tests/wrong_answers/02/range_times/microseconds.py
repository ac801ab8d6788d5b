# expects: that is in microseconds: a millisecond
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0) + microseconds
    return {name: microseconds / steps for name, microseconds in total.items()}
