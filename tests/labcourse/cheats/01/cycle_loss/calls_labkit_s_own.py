# expects: your answer calls the library's own labkit.models.losses.cycle_loss
from labkit.models import losses


def cycle_loss(*numbers):
    return losses.cycle_loss(*numbers)
