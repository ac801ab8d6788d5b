# expects: one lucky seed is not enough
def within_spread(scores, baseline):
    best = scores.groupby("name", sort=False).min()
    return (best <= scores.loc[baseline].max()).all(axis=1)
