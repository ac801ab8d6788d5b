# expects: a mean over all values
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).abs().mean(dim=(1, 2, 3))
