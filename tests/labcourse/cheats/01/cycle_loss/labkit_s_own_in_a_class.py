# expects: your answer calls the library's own labkit.models.losses.cycle_loss: w
from labkit.models import losses


class Loss:
    __call__ = staticmethod(losses.cycle_loss)


cycle_loss = Loss()
