# expects: this is labkit's own
from labkit.course import waves_bound
