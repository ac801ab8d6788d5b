# expects: give it a value
def busy(begin, end):
    latest = -np.inf
    for place in np.argsort(begin):
        covered += max(0.0, end[place] - max(latest, begin[place]))
        latest = max(latest, end[place])
    return covered
