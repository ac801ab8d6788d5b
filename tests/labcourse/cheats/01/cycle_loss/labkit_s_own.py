# expects: this is the library's own labkit.models.losses.cycle_loss
from labkit.models.losses import cycle_loss
