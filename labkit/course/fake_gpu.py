"""A GPU that is not there, to show on any machine what asynchronous work does to a stopwatch. SIMULATED time only."""

from __future__ import annotations


class FakeGPU:
    """Takes work and returns at once, as a GPU does; time passes on its own clock, in SIMULATED seconds.

    A launch costs the host `launch` seconds. Pieces of work are done one after the other; `synchronise` is the only
    thing that waits for them.
    """

    def __init__(self, launch: float = 1e-5):
        self.launch_cost = launch
        self.now = 0.0  # on the host
        self.free_at = 0.0  # when the device has done all it was given

    def launch(self, seconds: float) -> None:
        """Hands over work of `seconds`; the host goes on after the launch."""
        self.now += self.launch_cost
        self.free_at = max(self.free_at, self.now) + seconds

    def synchronise(self) -> None:
        """Lets the host wait until the device has done everything."""
        self.now = max(self.now, self.free_at)

    def clock(self) -> float:
        """The host's time, in place of `time.perf_counter`."""
        return self.now
