# expects: not by the number of pictures
def deviation_loss(code, translated, weight):
    return weight * (translated - code).abs().sum(dim=(1, 2, 3)).mean()
