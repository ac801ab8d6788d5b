# expects: your answer calls the library's own labkit.models.losses.deviation_loss
from labkit.models.losses import deviation_loss as cycle_loss
