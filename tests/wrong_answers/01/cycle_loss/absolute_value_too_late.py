# expects: absolute values before the mean
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).mean().abs()
