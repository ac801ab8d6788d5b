# expects: `sys` is not allowed
torch.sys.modules.clear()


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
