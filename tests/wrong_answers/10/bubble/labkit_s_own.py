# expects: this is labkit's own
from labkit.simulate.scaling import bubble
