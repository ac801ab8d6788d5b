# expects: changes of opposite sign cancel
def deviation_loss(code, translated, weight):
    return weight * (translated - code).mean()
