# expects: this is labkit's own
from labkit.networks.light import separable_block
