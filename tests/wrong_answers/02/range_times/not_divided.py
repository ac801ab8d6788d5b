# expects: divide by their number
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0) + microseconds / 1000
    return total
