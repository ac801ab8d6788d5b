# expects: this is labkit's own
from labkit.data.batches import positions
