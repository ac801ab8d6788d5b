# expects: sum of the durations
def hta_wall(launched, begin, end, steps):
    kept = launched < max(steps)
    return (end - begin)[kept].sum()
