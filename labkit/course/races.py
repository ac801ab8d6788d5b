"""Races between CUDA streams, found without CUDA: who has waited for whom, kept in vector clocks.

Operations on one stream run in the order they were launched; between streams there is no order, unless one waits for
the other. One operation *happens before* another if it comes earlier on the same stream, or if the other's stream has
waited for it, itself or through a third. Two uses of the same memory, at least one of them a write, are a **race**
unless one happens before the other: what comes out depends on which stream is faster today.

Each stream counts its operations, and its *vector clock* says how far it knows every stream to have come. To wait is
to take over what the other knows: of each pair of numbers, the larger. "Operation 7 of side 1 happens before this one"
then reads: the clock of this one's stream says 7 or more for side 1. That needs no GPU, only the order in which the
program launches and waits, and it finds a race on the day it does no harm, too.

Sources: Lamport 1978, "Time, Clocks, and the Ordering of Events in a Distributed System" (happens before); Mattern
1989, "Virtual Time and Global States of Distributed Systems" (vector clocks); PyTorch's notes "CUDA semantics", on
streams and on memory, and its page on `Tensor.record_stream`.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.course.check.answers import WrongAnswer
from labkit.course.clocks import Event, Stream, own
from labkit.step import Step

NO_WAIT = "{late} {late_does} {tensor} without having waited for {early}, which {early_does} it: "
MESSAGES = {  # by kind of race: what is wrong, and which call is missing
    "before": NO_WAIT + "call {late_name}.wait_stream({early_name}) before any work on {late} begins.",
    "after": NO_WAIT + "call {late_name}.wait_stream({early_name}) once all work on {early} is launched.",
    "between": NO_WAIT + "leave it to one of the two streams, or call {late_name}.wait_stream({early_name}) first.",
    "cast cache": "{late} reads {tensor}, which autocast made on {early} and keeps for every stream, without having "
    "waited for {early}: turn that cache off in the side streams, with `no_shared_casts(real_a.device.type)`, which is "
    "torch.autocast(..., cache_enabled=False).",
    "record_stream": "{tensor} lies in memory of {early}, and {late} uses it, too: unless you call "
    ".record_stream({late_name}) on it, {early} may hand that memory out again before {late} has finished.",
}


@dataclass(frozen=True)
class Race:
    """Two streams that use the same memory with nothing to keep them in order.

    `kind` says where the order is missing: "before" (a side stream does not wait for main), "after" (main does not
    wait for a side stream), "between" (side streams), "cast cache" (side streams, over a weight that autocast
    copied), "record_stream" (memory that may be handed out again too early).
    """

    kind: str
    tensor: str  # the first one it was seen on
    streams: tuple[str, str]  # who came first (or whose memory it is), and who came without order
    message: str


class Memory:
    """What a tensor and its views lie in: who allocated it, who wrote it last, who used it and when."""

    def __init__(self, name: str, owner: Stream, tick: int, is_cast: bool = False):
        self.name, self.owner, self.is_cast = name, owner, is_cast
        self.written = (owner, tick)  # by which stream's which operation
        self.uses = Counter({owner: tick})  # the last operation of each stream that read or wrote it
        self.marked: set[Stream] = set()  # by record_stream


class Sighting(NamedTuple):
    """One use of one memory that is in no order with an earlier one."""

    kind: str
    memory: Memory
    early: Stream
    late: Stream
    writes: bool = False

    def pair(self) -> frozenset[Stream]:
        return frozenset((self.early, self.late))


class Recorder(TorchDispatchMode):
    """Sees every operation on tensors, below autograd and autocast, and keeps the clocks.

    It holds on to all tensors it saw, so that an address stands for one tensor to the end.
    """

    def __init__(self, named: dict[str, Tensor]):
        super().__init__()
        Stream.made = self.made = []  # all streams in their order, main first
        Stream.host = self.host = Counter()  # empty until the host waits
        self.main = Stream()
        self.main.clock[self.main] = 1  # one operation of the main stream made all that was there before
        Stream.entered = [self.main]
        self.begun: dict[Stream, Counter] = {}  # each stream's clock at its first operation
        self.memory: dict[int, Memory] = {}  # by address
        self.seen: list[Tensor] = []
        self.sightings: list[Sighting] = []
        for name, tensor in named.items():
            self.add(tensor, Memory(name, self.main, 1))

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        used, changed = self.of((args, kwargs)), self.of(changed_in_place(operation, args, kwargs))
        made = [tensor for tensor in tensors(result) if address(tensor) not in self.memory]
        if made or changed:  # else the result is a view: no work for the device
            stream = self.launch()
            for memory in used:
                self.use(memory, stream, writes=memory in changed)
            for tensor in made:
                self.add(tensor, self.made_by(operation, used, tensor, stream))
        return result

    def launch(self) -> Stream:
        """Counts one more operation on the current stream; it comes after all that the host has seen finish."""
        stream = own()
        stream.clock |= Stream.host
        stream.clock[stream] += 1
        self.begun.setdefault(stream, Counter(stream.clock))
        return stream

    def use(self, memory: Memory, stream: Stream, writes: bool) -> None:
        """A read has to come after the last write; a write, after every earlier use."""
        for early, tick in list(memory.uses.items()) if writes else [memory.written]:
            if stream.clock[early] < tick:
                self.sightings.append(Sighting(self.kind(early, stream, memory), memory, early, stream, writes))
        memory.uses[stream] = stream.clock[stream]
        if writes:
            memory.written = (stream, stream.clock[stream])

    def kind(self, early: Stream, late: Stream, memory: Memory) -> str:
        """What a missing wait of `late` for `early` is called, see `Race`."""
        if self.main in (early, late):
            return "before" if early is self.main else "after"
        return "cast cache" if memory.is_cast else "between"

    def made_by(self, operation: Any, used: list[Memory], tensor: Tensor, stream: Stream) -> Memory:
        """The memory of a result: the current stream allocates and writes it."""
        is_cast = operation is torch.ops.aten._to_copy.default
        if is_cast:
            name = f"the {str(tensor.dtype).removeprefix('torch.')} copy of {used[0].name}"
        else:
            name = f"the result of {operation.overloadpacket.__name__} on {stream.name}"
        return Memory(name, stream, stream.clock[stream], is_cast)

    def add(self, tensor: Tensor, memory: Memory) -> None:
        """Remembers `memory` under the tensor's address."""
        self.memory[address(tensor)] = memory
        self.seen.append(tensor)

    def of(self, tree: Any) -> list[Memory]:
        """The memory of every tensor in `tree`, each once."""
        for tensor in tensors(tree):
            if address(tensor) not in self.memory:
                self.add(tensor, Memory("a tensor from before the step", self.main, 1))
        return list(dict.fromkeys(self.memory[address(tensor)] for tensor in tensors(tree)))

    def name_output(self, name: str, network: nn.Module, inputs: Any, output: Any) -> None:
        """A forward hook: calls what the network gave "G_A(real_a)"."""
        for memory in self.of(output):
            memory.name = f"{name}({', '.join(memory.name for memory in self.of(inputs))})"

    def record_stream(self, tensor: Tensor, stream: Stream) -> None:
        """Stands in for `Tensor.record_stream`."""
        for memory in self.of(tensor):
            memory.marked.add(own(stream))

    def synchronize(self, device: Any = None) -> None:
        """Stands in for `torch.cuda.synchronize`: the host sees everything finish."""
        for stream in (self.main, *self.begun):
            stream.synchronize()

    def set_stream(self, stream: Stream) -> None:
        """Stands in for `torch.cuda.set_stream`, after which it would be the program's to go back."""
        raise WrongAnswer("torch.cuda.set_stream leaves the stream on for what comes after: use torch.cuda.stream.")

    @contextmanager
    def standing_in(self, networks: dict[str, nn.Module], device: torch.device) -> Iterator[None]:
        """Puts the stand-ins in the place of CUDA's, and takes them out again whatever happens."""
        asks_autocast = torch.is_autocast_enabled
        stand_ins = {
            (torch.cuda, "Stream"): Stream,
            (torch.cuda, "Event"): Event,
            (torch.cuda, "stream"): lambda stream: own(stream) if stream else nullcontext(),
            (torch.cuda, "set_stream"): self.set_stream,
            (torch.cuda, "current_stream"): lambda device=None: own(),
            (torch.cuda, "default_stream"): lambda device=None: self.main,
            (torch.cuda, "synchronize"): self.synchronize,
            (torch.cuda, "is_available"): lambda: True,
            (torch, "is_autocast_enabled"): lambda device_type=None: asks_autocast(device.type),
            (Tensor, "is_cuda"): property(lambda tensor: True),
            (Tensor, "record_stream"): lambda tensor, stream: self.record_stream(tensor, stream),
        }
        with ExitStack() as stack:
            for (owner, name), stand_in in stand_ins.items():
                stack.enter_context(mock.patch.object(owner, name, stand_in))
            for name, network in networks.items():
                stack.enter_context(network.register_forward_hook(functools.partial(self.name_output, name)))
            stack.enter_context(self)
            yield

    def races(self) -> list[Race]:
        """One race for each kind and pair of streams, in the order they were seen; memory last."""
        grouped: dict[tuple[str, frozenset[Stream]], list[Sighting]] = {}
        for sighting in [*self.sightings, *self.lent_memory()]:
            grouped.setdefault((sighting.kind, sighting.pair()), []).append(sighting)
        return [tell(sightings) for sightings in grouped.values()]

    def lent_memory(self) -> Iterator[Sighting]:
        """Memory that its owner may hand out again at the end, while another stream is not known to have finished.

        Where a wait is missing between two streams there is no looking further at what they lend each other.
        """
        racing = {sighting.pair() for sighting in self.sightings}
        for memory in self.memory.values():
            finished = memory.owner.clock | Stream.host
            for user, tick in memory.uses.items():
                lent = Sighting("record_stream", memory, memory.owner, user)
                if finished[user] < tick and user not in memory.marked and lent.pair() not in racing:
                    yield lent


def tell(sightings: list[Sighting]) -> Race:
    """Of sightings of the same kind between the same streams: the first, and how many more tensors there are."""
    kind, memory, early, late, writes = sightings[0]
    others = len({sighting.memory for sighting in sightings}) - 1
    message = MESSAGES[kind].format(
        tensor=memory.name + (f" (and {others} more)" if others else ""),
        early=early.name,
        late=late.name,
        early_name=early.name.replace(" ", "_"),
        late_name=late.name.replace(" ", "_"),
        late_does="writes" if writes else "reads",
        early_does="uses" if writes else "writes",
    )
    return Race(kind, memory.name, (early.name, late.name), message)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a nest of lists, tuples and dictionaries, but for those that hold nothing."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes()]


def address(tensor: Tensor) -> int:
    """Where the memory begins that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def changed_in_place(operation: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that `operation` writes to, as its schema says."""
    schema = operation._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
    writes = {argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write}
    return [value for name, value in given.items() if name in writes]


def record(step: Step, real_a: Tensor, real_b: Tensor) -> tuple[Recorder, dict[str, Tensor]]:
    """What was seen while the generators' losses were computed, and the losses. `step` may keep stand-in streams."""
    batch = {"real_a": real_a, "real_b": real_b}
    recorder = Recorder({**batch, **dict(step.model.named_parameters()), **dict(step.model.named_buffers())})
    with recorder.standing_in(dict(step.model.named_children()), real_a.device):
        losses = step.losses("generators", batch)
    return recorder, losses


def find_races(step: Step, real_a: Tensor, real_b: Tensor) -> list[Race]:
    """The races in the generators' half of a step: both cycles, under autocast if the step uses it, and the losses.

    Works without a GPU: while the losses are computed, streams and events are stand-ins, and tensors say they are on
    CUDA. Backward is not looked at: autograd runs each operation of it on the stream of the forward one, and makes
    these streams wait for each other.

    Args:
        step: from `labkit.make_step`, not yet run on a GPU.
        real_a, real_b: (B, 3, H, W) in [-1, 1].

    Raises:
        WrongAnswer: the step uses a CUDA stream that was made before, or torch.cuda.set_stream.
    """
    recorder, _ = record(copy.copy(step), real_a, real_b)  # the copy may keep the stand-in streams it makes
    return recorder.races()
