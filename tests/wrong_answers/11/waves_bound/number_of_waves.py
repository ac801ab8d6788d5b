# expects: That is the number of waves
def waves_bound(trials, workers):
    return -(-trials // workers)
