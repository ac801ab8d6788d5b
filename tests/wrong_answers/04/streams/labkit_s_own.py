# expects: this is labkit's own
from labkit.variants.streams import Streams as TwoStreams
