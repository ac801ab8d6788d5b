# expects: a Series is expected
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    return bool((medians <= scores.loc[baseline].max()).all(axis=None))
