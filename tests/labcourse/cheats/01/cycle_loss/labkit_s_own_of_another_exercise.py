# expects: your answer calls the library's own labkit.models.losses.identity_loss
from labkit.models.losses import identity_loss as cycle_loss
