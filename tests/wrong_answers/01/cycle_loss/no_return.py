# expects: not None
def cycle_loss(real, reconstruction, weight=10.0):
    weight * (reconstruction - real).abs().mean()
