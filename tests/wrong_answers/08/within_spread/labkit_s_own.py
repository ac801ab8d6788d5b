# expects: this is labkit's own
from labkit.measure.quality import within_spread
