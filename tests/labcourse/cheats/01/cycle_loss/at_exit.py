# expects: `import atexit` is not allowed
import atexit

atexit.register(print, "all points")


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
