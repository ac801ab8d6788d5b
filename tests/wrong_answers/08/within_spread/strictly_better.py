# expects: as bad as the baseline's worst seed is no worse
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    return (medians < scores.loc[baseline].max()).all(axis=1)
