# expects: outside the loop
def busy(begin, end):
    covered, latest = 0.0, -np.inf
    for place in np.argsort(begin):
        covered += max(0.0, end[place] - max(latest, begin[place]))
        latest = max(latest, end[place])
        return covered
    return covered
