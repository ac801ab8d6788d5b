# expects: keep the latest end so far (max)
def busy(begin, end):
    covered, latest = 0.0, -np.inf
    for place in np.argsort(begin):
        covered += max(0.0, end[place] - max(latest, begin[place]))
        latest = end[place]
    return covered
