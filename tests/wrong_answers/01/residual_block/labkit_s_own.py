# expects: this is labkit's own
from labkit.networks import ResidualBlock
