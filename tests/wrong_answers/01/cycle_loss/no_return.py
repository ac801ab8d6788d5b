# expects: Is a `return` missing?
def cycle_loss(real, reconstruction, weight=10.0):
    weight * (reconstruction - real).abs().mean()
