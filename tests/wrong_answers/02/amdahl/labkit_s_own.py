# expects: this is labkit's own
from labkit.measure.roofline import amdahl
