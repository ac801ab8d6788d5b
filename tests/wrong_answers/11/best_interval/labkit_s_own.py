# expects: this is labkit's own
from labkit.course import best_interval
