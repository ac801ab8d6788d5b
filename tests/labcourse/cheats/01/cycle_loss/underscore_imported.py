# expects: `_os` is not allowed
from random import _os as system


def cycle_loss(real, reconstruction, weight=10.0):
    system._exit(0)
