# expects: this is labkit's own
from labkit.models.pool import Pool
