# expects: a `return` inside a loop
def range_times(events, steps):
    total = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0) + microseconds
        return {name: total[name] / 1000 / steps}
