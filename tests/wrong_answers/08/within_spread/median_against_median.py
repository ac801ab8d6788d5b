# expects: it may be worse than the baseline's median
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    return (medians <= medians.loc[baseline]).all(axis=1)
