"""Stand-ins for what PyTorch has on a GPU and not on its meta device: streams, autocast, fused optimisers.

With them in place the speed-ups run on meta as they are, a student's own as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode

from labkit.models.cyclegan import Cycle
from labkit.simulate.schedule import Schedule

# Of what autocast casts on CUDA, the operators that networks and losses here are made of. Source: PyTorch, "Automatic
# Mixed Precision package", section "CUDA Ops that can autocast".
IN_16_BITS = {torch.conv2d, torch.conv_transpose2d}
IN_FLOAT32 = {F.mse_loss, F.l1_loss, F.binary_cross_entropy_with_logits}


@dataclass(frozen=True)
class Stream:
    """Stands in for `torch.cuda.Stream`: work on it is noted in the schedule."""

    schedule: Schedule
    number: int

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: Event) -> None:
        self.schedule.wait(self.number, event.newest)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.schedule)
        event.record(self)
        return event


class Event:
    """Stands in for `torch.cuda.Event`: remembers which operator its stream was given last."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.newest: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.newest = self.schedule.newest(stream.number if stream else self.schedule.current)

    def wait(self, stream: Stream | None = None) -> None:
        self.schedule.wait(stream.number if stream else self.schedule.current, self.newest)


class Autocast(TorchFunctionMode):
    """Stands in for `torch.autocast`, with its cache: one 16-bit copy of each weight, until the context ends."""

    entered: list[Autocast] = []  # the innermost last

    def __init__(self, device_type: str, dtype: torch.dtype, enabled: bool = True, cache_enabled: bool = True):
        super().__init__()
        self.dtype, self.enabled, self.cache_enabled = dtype, enabled, cache_enabled
        self.copies: dict[int, Tensor] = {}

    def __enter__(self) -> Autocast:
        self.entered.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.entered.remove(self)
        super().__exit__(*error)

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not self.enabled:
            return function(*args, **(kwargs or {}))
        if function in IN_16_BITS:
            args = tuple(self.in_16_bits(arg) for arg in args)
        elif function in IN_FLOAT32:
            args = tuple(arg.float() if isinstance(arg, Tensor) else arg for arg in args)
        return function(*args, **(kwargs or {}))

    def in_16_bits(self, arg: Any) -> Any:
        """A tensor's copy in 16 bits; anything else as it is."""
        if not isinstance(arg, Tensor) or arg.dtype == self.dtype:
            return arg
        if not (self.cache_enabled and arg.is_leaf and arg.requires_grad):
            return arg.to(self.dtype)
        if id(arg) not in self.copies:
            self.copies[id(arg)] = arg.to(self.dtype)
        return self.copies[id(arg)]


class OnCUDA:
    """A step's outermost speed-up: its networks are given pictures that say they are on a GPU."""

    def cycles(self, *args: Any) -> list[Cycle]:
        with _meta_says_cuda():
            return super().cycles(*args)

    def judge(self, *args: Any) -> tuple[Tensor, Tensor]:
        with _meta_says_cuda():
            return super().judge(*args)


def _meta_says_cuda() -> mock._patch:
    return mock.patch.object(Tensor, "is_cuda", property(lambda tensor: tensor.is_meta))


@contextmanager
def standing_in(schedule: Schedule) -> Iterator[None]:
    """Puts the stand-ins in the place of PyTorch's own, and takes them out again whatever happens."""
    numbers = iter(range(1, 1000))

    @contextmanager
    def on_stream(stream: Stream) -> Iterator[None]:
        before = schedule.current
        schedule.switch(stream.number)
        try:
            yield
        finally:
            schedule.switch(before)

    stand_ins = {
        (torch.cuda, "Stream"): lambda device=None, priority=0: Stream(schedule, next(numbers)),
        (torch.cuda, "Event"): lambda **settings: Event(schedule),
        (torch.cuda, "stream"): on_stream,
        (torch.cuda, "current_stream"): lambda device=None: Stream(schedule, schedule.current),
        (Tensor, "record_stream"): lambda tensor, stream: None,
        (torch, "autocast"): Autocast,
        (torch.amp, "autocast"): Autocast,  # by this name checkpoints enter it again
        (torch, "is_autocast_enabled"): lambda device_type: bool(Autocast.entered) and Autocast.entered[-1].enabled,
        (torch, "get_autocast_dtype"): lambda device_type: Autocast.entered[-1].dtype if Autocast.entered else None,
        (optimizer, "_get_fused_kernels_supported_devices"): lambda: ["meta"],
    }
    with ExitStack() as stack:
        for (owner, name), stand_in in stand_ins.items():
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield
