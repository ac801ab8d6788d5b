# expects: `_os` is not allowed
import random


def cycle_loss(real, reconstruction, weight=10.0):
    getattr(random, "_os").abort()
