# expects: differences of opposite sign cancel
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).mean()
