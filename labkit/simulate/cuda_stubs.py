"""Stubs for the parts of CUDA that a machine without a GPU lacks: streams, events, fused optimisers.

Nothing runs on a stub stream. The stubs report every wait to a `Timekeeper`, which decides how to note it: `Schedule`
collects the order of a step's operators, `labcourse.races` keeps vector clocks. So a speed-up runs unchanged, and
so does one that a student has written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._pytree import tree_map

from labkit.errors import LabkitError

NO_FORWARD = 2**63  # autograd nodes that belong to no forward operator have sequence numbers above this


class StreamError(LabkitError):
    """The program uses CUDA streams in a way that the stubs cannot follow."""


class Timekeeper:
    """Follows the streams of a program and notes the waits between them. Override all methods but `switched`.

    Attributes:
        main: the stream that is current at the beginning.
        entered: the streams of the `with torch.cuda.stream(...)` blocks the program is in, the current one last.
        made: how many streams the program has made, without `main`.
    """

    def __init__(self) -> None:
        self.main = Stream(number=0)
        self.entered = [self.main]
        self.made = 0

    @property
    def current(self) -> Stream:
        """The stream that gets the next operation."""
        return self.entered[-1]

    def switched(self) -> None:
        """Is called whenever another stream has become the current one."""

    def point(self, stream: Stream) -> Any:
        """How far the stream has come: the value that an event stores."""

    def wait(self, stream: Stream, point: Any) -> None:
        """Lets the next operation of the stream wait for a `point`."""

    def host_waits(self, point: Any = None) -> None:
        """Lets the host wait for a `point`, or for all work on all streams."""


class Stream:
    """Stub for `torch.cuda.Stream`, known by its number: 0 is the main stream, the others count from 1."""

    timekeeper: ClassVar[Timekeeper]  # belongs to the class: a stream that a step has kept reports to today's

    def __init__(self, device: Any = None, priority: int = 0, number: int | None = None):
        if number is None:
            number = self.timekeeper.made = self.timekeeper.made + 1
        self.number = number
        self.name = f"side {number}" if number else "main"

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.record_event().synchronize()

    def __enter__(self) -> Stream:
        self.timekeeper.entered.append(self)
        self.timekeeper.switched()
        return self

    def __exit__(self, *error: object) -> None:
        self.timekeeper.entered.pop()
        self.timekeeper.switched()


class Event:
    """Stub for `torch.cuda.Event`: stores how far a stream had come when the event was recorded.

    As in CUDA, waiting for an event that was never recorded does nothing. The same goes for an event that was recorded
    under an earlier timekeeper, since all of that work has ended.
    """

    def __init__(self, *settings: Any, **named_settings: Any):
        self.recorded: tuple[Timekeeper, Any] | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.recorded = Stream.timekeeper, Stream.timekeeper.point(own(stream))

    def wait(self, stream: Stream | None = None) -> None:
        self._tell(lambda timekeeper, point: timekeeper.wait(own(stream), point))

    def synchronize(self) -> None:
        self._tell(lambda timekeeper, point: timekeeper.host_waits(point))

    def _tell(self, tell: Callable[[Timekeeper, Any], None]) -> None:
        if self.recorded and self.recorded[0] is Stream.timekeeper:
            tell(*self.recorded)


def own(stream: Stream | None = None) -> Stream:
    """The given stream, or the current one. Raises `StreamError` if it is no stub but a stream of a real GPU."""
    stream = stream or Stream.timekeeper.current
    if not isinstance(stream, Stream):
        raise StreamError(f"{stream} is a CUDA stream that was made earlier. Make streams in the step's first call.")
    return stream


def _set_stream(stream: Stream | None) -> None:
    Stream.timekeeper.entered[-1] = own(stream)
    Stream.timekeeper.switched()


@contextmanager
def stubs_for_cuda(timekeeper: Timekeeper, others: Mapping[tuple[Any, str], Any] | None = None) -> Iterator[None]:
    """Inside, the stubs replace PyTorch's streams and events, and report to `timekeeper`.

    Args:
        timekeeper: follows the streams.
        others: more replacements, by owner and attribute, such as `ON_META`.
    """
    stubs = {
        (Stream, "timekeeper"): timekeeper,
        (torch.cuda, "Stream"): Stream,
        (torch.cuda, "Event"): Event,
        (torch.cuda, "stream"): lambda stream: own(stream) if stream else nullcontext(),
        (torch.cuda, "set_stream"): _set_stream,
        (torch.cuda, "current_stream"): lambda device=None: timekeeper.current,
        (torch.cuda, "default_stream"): lambda device=None: timekeeper.main,
        (torch.cuda, "synchronize"): lambda device=None: timekeeper.host_waits(),
        (Tensor, "record_stream"): lambda tensor, stream: None,
    } | dict(others or {})
    with ExitStack() as stack:
        for (owner, name), stub in stubs.items():
            stack.enter_context(mock.patch.object(owner, name, stub, create=owner is Stream))
        yield


class Schedule(Timekeeper):
    """The stream of every recorded operator, and the operators of other streams that it waits for.

    Operators are known by their positions in the order of their calls, streams by their numbers. Source: PyTorch's
    notes, "CUDA semantics", section "Stream semantics of backward passes".
    """

    def __init__(self) -> None:
        super().__init__()
        self._streams: list[int] = []  # of each operator
        self._switches = [(0, 0)]  # (n, stream): autograd's forward nodes from number n on belong to this stream
        self._newest: dict[int, int] = {}  # of each stream, its newest operator
        self._waits: dict[int, set[int]] = defaultdict(set)  # of each stream, the operators its next one waits for
        # By address, the last operator that wrote to this memory. The memory is kept, so that its address stays taken.
        self._writers: dict[int, tuple[torch.UntypedStorage, int]] = {}
        self._was_backward = False

    def switched(self) -> None:
        self._switches.append((torch._C._autograd._get_sequence_nr(), self.current.number))

    def point(self, stream: Stream) -> int | None:
        """The newest operator of the stream, None if it has none yet."""
        return self._newest.get(stream.number)

    def wait(self, stream: Stream, point: int | None) -> None:
        if point is not None:
            self._waits[stream.number].add(point)

    def host_waits(self, point: Any = None) -> None:
        raise StreamError("synchronize: here the host cannot wait. Use wait_stream or events, for which the GPU waits.")

    def add(self, reads: list[Tensor], writes: list[Tensor]) -> tuple[int, tuple[int, ...]]:
        """The stream of the next operator, and the operators it waits for, at most one of every other stream.

        As in PyTorch, a backward operator is on the stream of its forward operator and waits for the operators that
        wrote its inputs. After the backward pass the current stream waits for all others. A sum of gradients has no
        forward operator. Here it is on the stream of the last gradient.
        """
        writers = [self._writers[address][1] for address in map(_address, reads) if address in self._writers]
        is_backward = torch._C._current_graph_task_id() != -1
        stream = self._stream_in_backward(writers) if is_backward else self.current.number
        if is_backward:
            self._waits[stream].update(writers)
        elif self._was_backward:
            self._waits[stream].update(self._newest.values())
        self._was_backward = is_backward
        after = {self._streams[position]: position for position in sorted(self._waits.pop(stream, ()))}
        after.pop(stream, None)
        self._newest[stream] = len(self._streams)
        for tensor in writes:
            self._writers[_address(tensor)] = tensor.untyped_storage(), self._newest[stream]
        self._streams.append(stream)
        return stream, tuple(after.values())

    def _stream_in_backward(self, writers: list[int]) -> int:
        node = torch._C._current_autograd_node()
        number = NO_FORWARD if node is None else node._sequence_nr()
        if number < NO_FORWARD:
            return self._switches[bisect_right(self._switches, number, key=lambda switch: switch[0]) - 1][1]
        return self._streams[max(writers)] if writers else self.current.number


def _address(tensor: Tensor) -> int:
    """An address for the memory that a tensor shares with its views. On the meta device it is that of an object."""
    return tensor.untyped_storage()._cdata


def redirected(function: Callable, named_device: str = "meta", device: str = "cuda") -> Callable:
    """The function, called with `device` in place of `named_device`."""

    def called(*args: Any, **named: Any) -> Any:
        args, named = tree_map(lambda given: device if given == named_device else given, (args, named))
        return function(*args, **named)

    return called


# With these replacements a step is made and runs on the meta device as it would on a GPU.
ON_META: dict[tuple[Any, str], Any] = {
    (Tensor, "is_cuda"): property(lambda tensor: tensor.is_meta),
    (torch.cuda, "is_bf16_supported"): lambda including_emulation=True: True,
    (torch.cuda.amp.common, "amp_definitely_not_available"): lambda: False,
    (torch.autocast, "__init__"): redirected(torch.autocast.__init__),
    (torch.amp, "is_autocast_available"): redirected(torch.amp.is_autocast_available),
    (torch, "is_autocast_enabled"): redirected(torch.is_autocast_enabled),
    (torch, "get_autocast_dtype"): redirected(torch.get_autocast_dtype),
    # On a GPU this reads whether a gradient has overflowed.
    (torch.amp.GradScaler, "_maybe_opt_step"): lambda scaler, optimizer, state, *args: optimizer.step(*args),
    (optimizer, "_get_fused_kernels_supported_devices"): lambda: ["meta"],
    (optimizer, "_get_foreach_kernels_supported_devices"): lambda: ["meta"],
}
