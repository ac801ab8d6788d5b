"""Vector clocks: how far each CUDA stream knows every other one to have come. `labkit.course.races` explains them."""

from __future__ import annotations

from collections import Counter, defaultdict

from labkit.simulate.cuda_stubs import Stream, Timekeeper

Clock = Counter[Stream]  # the operator | takes the larger of each pair of numbers


class VectorClocks(Timekeeper):
    """How far each stream knows every stream to have come.

    Attributes:
        of: the clock of each stream.
        host: the clock of the Python program: the operations that it has seen finish.
        begun: the clock of each stream at its first operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of: defaultdict[Stream, Clock] = defaultdict(Counter)
        self.of[self.main][self.main] = 1  # one operation of the main stream made everything that was there before
        self.host: Clock = Counter()
        self.begun: dict[Stream, Clock] = {}

    def launch(self) -> Stream:
        """Counts one more operation on the current stream. It comes after all operations the host has seen finish."""
        stream = self.current
        self.of[stream] |= self.host
        self.of[stream][stream] += 1
        self.begun.setdefault(stream, Counter(self.of[stream]))
        return stream

    def point(self, stream: Stream) -> Clock:
        return Counter(self.of[stream])

    def wait(self, stream: Stream, point: Clock) -> None:
        self.of[stream] |= point

    def host_waits(self, point: Clock | None = None) -> None:
        for clock in self.of.values() if point is None else [point]:
            self.host |= clock
