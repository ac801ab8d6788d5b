# expects: some of them may idle
def waves_bound(trials, workers):
    return float(workers)
