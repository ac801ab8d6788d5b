# expects: this is labkit's own
from labkit.pool import Pool
