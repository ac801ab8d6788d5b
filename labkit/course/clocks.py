"""Stand-ins for CUDA streams and events: nothing runs on them, they keep vector clocks for `labkit.course.races`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from labkit.course.check.answers import require


class Stream:
    """Stands in for `torch.cuda.Stream`: nothing runs on it, it only knows how far every stream has come."""

    made: list[Stream]  # these three belong to all streams together; a Recorder begins them anew
    host: Counter  # the clock of the Python program: what it has seen finish
    entered: list[Stream]  # `with torch.cuda.stream(...)`, the current one last

    def __init__(self, device: Any = None, priority: int = 0):
        self.name = f"side {len(Stream.made)}" if Stream.made else "main"
        Stream.made.append(self)
        self.clock = Counter()  # between Counters, | takes the larger of each pair of numbers

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        Stream.host |= self.clock

    def __enter__(self) -> Stream:
        Stream.entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        Stream.entered.pop()


class Event:
    """Stands in for `torch.cuda.Event`: what the recorded stream knew at that moment."""

    def __init__(self, *settings: Any, **named_settings: Any):
        self.clock = Counter()  # waiting for an event that was never recorded waits for nothing, as in CUDA

    def record(self, stream: Stream | None = None) -> None:
        self.clock = Counter(own(stream).clock)

    def wait(self, stream: Stream | None = None) -> None:
        own(stream).clock |= self.clock

    def synchronize(self) -> None:
        Stream.host |= self.clock

    def elapsed_time(self, end: Event) -> float:
        return 0.0


def own(stream: Stream | None = None) -> Stream:
    """`stream`, or else the current one. Raises `WrongAnswer` if it is a real CUDA stream."""
    stream = stream or Stream.entered[-1]
    require(
        isinstance(stream, Stream),
        "one of the streams was there before the check: make them in cycles, the first time it is called.",
    )
    return stream
