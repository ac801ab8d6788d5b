# expects: below 1
def waves_bound(trials, workers):
    return -(-trials // workers) / trials
