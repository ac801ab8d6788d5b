# expects: squared difference
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * ((reconstruction - real) ** 2).mean()
