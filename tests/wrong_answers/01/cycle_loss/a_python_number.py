# expects: leave out .item()
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).abs().mean().item()
