# expects: both count
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    return (medians <= scores.loc[baseline].max()).any(axis=1)
