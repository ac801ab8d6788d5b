# expects: your answer calls labkit's own labkit.models.losses.cycle_loss
from labkit.models import losses


def cycle_loss(*numbers):
    return losses.cycle_loss(*numbers)
