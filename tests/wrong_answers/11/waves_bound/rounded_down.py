# expects: round up
def waves_bound(trials, workers):
    return trials / max(1, trials // workers)
