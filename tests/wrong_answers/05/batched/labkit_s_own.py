# expects: this is labkit's own
from labkit.variants.batched import Batched
