# expects: this is labkit's own
from labkit.models.losses import deviation_loss
