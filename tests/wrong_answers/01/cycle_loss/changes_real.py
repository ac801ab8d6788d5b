# expects: `real` was changed
def cycle_loss(real, reconstruction, weight=10.0):
    real -= reconstruction
    return weight * real.abs().mean()
