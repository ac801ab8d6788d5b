# expects: adds nothing
def busy(begin, end):
    covered, latest = 0.0, -np.inf
    for place in np.argsort(begin):
        covered += end[place] - max(latest, begin[place])
        latest = max(latest, end[place])
    return covered
