# expects: nn.L1Loss()(a, b)
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * nn.L1Loss(reconstruction, real)
