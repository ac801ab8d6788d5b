# expects: total.get(name, 0)
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] += microseconds
    return {name: microseconds / 1000 / steps for name, microseconds in total.items()}
