# expects: That is the busy time
def hta_wall(launched, begin, end, steps):
    covered, latest = 0.0, -np.inf
    for place in np.argsort(begin):
        if launched[place] < max(steps):
            covered += max(0.0, end[place] - max(latest, begin[place]))
            latest = max(latest, end[place])
    return covered
