# expects: your answer calls the library's own labkit.models.losses.cycle_loss: w
from functools import partial

from labkit.models import losses

cycle_loss = partial(losses.cycle_loss)
