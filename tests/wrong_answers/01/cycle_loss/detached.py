# expects: no gradient flows back
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction.detach() - real).abs().mean()
