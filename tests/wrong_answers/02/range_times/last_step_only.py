# expects: add up the events of the same name
def range_times(events, steps):
    return {name: microseconds / 1000 for name, _, microseconds in events}
