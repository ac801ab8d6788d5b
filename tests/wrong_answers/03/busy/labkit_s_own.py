# expects: this is labkit's own
from labkit.traces.intervals import busy
