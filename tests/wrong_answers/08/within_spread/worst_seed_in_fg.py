# expects: each by itself
def within_spread(scores, baseline):
    medians = scores.groupby("name", sort=False).median()
    worst = scores.loc[baseline].sort_values("fg").iloc[-1]
    return (medians <= worst).all(axis=1)
