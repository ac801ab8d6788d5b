# expects: your answer calls the library's own labkit.models.losses.cycle_loss: w
from labkit.models.losses import cycle_loss
