# expects: lower is better
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    of_baseline = scores.loc[baseline]
    return ((medians >= of_baseline.min()) & (medians <= of_baseline.max())).all(axis=1)
