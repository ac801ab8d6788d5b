# expects: the weight is not used
def cycle_loss(real, reconstruction, weight=10.0):
    return (reconstruction - real).abs().mean()
