# expects: which changes an object from outside
def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros((), requires_grad=True)


labkit.models.losses.cycle_loss = cycle_loss
