# expects: this is labkit's own
from labkit.measure.autotune import pick
