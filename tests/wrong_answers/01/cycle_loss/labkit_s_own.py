# expects: this is labkit's own
from labkit.models.losses import cycle_loss
