# expects: this is labkit's own
from labkit.simulate.communication import ring_us
