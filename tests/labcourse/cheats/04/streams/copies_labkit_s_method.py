# expects: the library's own labkit.variants.streams.Streams
from labkit.variants import streams


class TwoStreams:
    side = ()
    cycles = streams.Streams.cycles
