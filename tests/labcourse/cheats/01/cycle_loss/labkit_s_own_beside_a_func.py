# expects: this is the library's own labkit.models.losses.cycle_loss
from labkit.models import losses


class Loss:
    __call__ = staticmethod(losses.cycle_loss)

    def func(self):
        pass


cycle_loss = Loss()
