# expects: take L1
def deviation_loss(code, translated, weight):
    return weight * F.mse_loss(translated, code)
