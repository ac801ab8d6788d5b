# expects: this is labkit's own
from labkit.measure.timing import alternate
