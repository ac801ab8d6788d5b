# expects: this is labkit's own
from labkit.simulate.many_gpus import bubble
