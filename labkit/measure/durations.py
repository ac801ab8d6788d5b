"""How long a step's operators take on this device: what `labkit.simulate.replay` prefers to a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.measure.operators import call_on, signature
from labkit.measure.record import Batch, as_found
from labkit.step import Step

REPEATS = 10
HEAD_START = 10_000_000  # clock cycles, some milliseconds


def operator_durations(step: Step, batch: Batch) -> dict[str, float]:
    """Microseconds that each operator of the step takes on its device, by `labkit.measure.operators.signature`.

    Each signature is measured where it first occurs, ten times in a row on the very tensors of the step; the step is
    afterwards as it was found. On a GPU all ten are launched while it is still busy with something else, so that what
    launching costs the host is not in them.
    """
    with as_found(step):
        step(*batch)  # libraries choose their kernels, Adam makes its state
        with _Stopwatch(batch[0].device) as stopwatch:
            step(*batch)
    return stopwatch.microseconds


class _Stopwatch(TorchDispatchMode):
    """Measures every operator that it has not seen yet."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.microseconds: dict[str, float] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        call = call_on(self.device.type, operator, args, kwargs, result)
        if call is None:
            return result
        key = signature(call.name, *call.shapes, call.dtype)
        if key not in self.microseconds:
            self.microseconds[key] = self.measure(lambda: operator(*args, **kwargs))
        return result

    def measure(self, run: Callable[[], Any]) -> float:
        """Microseconds of one run."""
        if self.device.type != "cuda":
            started = time.perf_counter()
            for _ in range(REPEATS):
                run()
            return 1e6 * (time.perf_counter() - started) / REPEATS
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START)
        begin.record()
        for _ in range(REPEATS):
            run()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / REPEATS
