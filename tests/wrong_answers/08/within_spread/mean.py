# expects: take the median
def within_spread(scores, baseline):
    means = scores.groupby("name", sort=False).mean()
    return (means <= scores.loc[baseline].max()).all(axis=1)
