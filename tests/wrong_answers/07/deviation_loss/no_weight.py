# expects: the weight is not used
def deviation_loss(code, translated, weight):
    return (translated - code).abs().mean()
