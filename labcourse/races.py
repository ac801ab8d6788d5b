"""Races between CUDA streams, found without CUDA: vector clocks note which stream has waited for which.

Operations on one stream run in the order they were launched. Between streams there is no order, unless one stream waits
for another. An operation *happens before* another if it comes earlier on the same stream, or if the other's stream has
waited for it, directly or through a third stream. Two uses of the same memory, at least one of them a write, are a
**race** unless one happens before the other: the result depends on which stream is faster today.

Each stream counts its operations, and its *vector clock* stores how far it knows every stream to have come. A stream
that waits for another takes over its knowledge: of each pair of numbers, the larger. "Operation 7 of side 1 happens
before this operation" then reads: the clock of this operation's stream says 7 or more for side 1. The clocks need no
GPU, only the order in which the program launches and waits. So they find a race even on a day when it does no harm.

Sources:
- Lamport 1978, "Time, Clocks, and the Ordering of Events in a Distributed System" (happens before).
- Mattern 1989, "Virtual Time and Global States of Distributed Systems" (vector clocks).
- PyTorch's notes "CUDA semantics", on streams and on memory, and its page on `Tensor.record_stream`.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.simulate.cuda_stubs import Stream, Timekeeper, own, redirected, stubs_for_cuda

T = TypeVar("T")
Clock = Counter[Stream]  # the operator | takes the larger of each pair of numbers
# Operations whose result is the host's: it waits for the stream that they run on.
aten = torch.ops.aten
READ_BY_HOST = {aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default}

NO_WAIT = "{late} {late_does} {tensor} without having waited for {early}, which {early_does} it: "
MESSAGES = {  # by kind of race: the fault, and the call that is missing
    "before": NO_WAIT + "call {late_name}.wait_stream({early_name}) before any work on {late} begins.",
    "after": NO_WAIT + "call {late_name}.wait_stream({early_name}) once all work on {early} is launched.",
    "between": NO_WAIT + "let only one of the two streams use it, or call {late_name}.wait_stream({early_name}) first.",
    "cast cache": "{late} reads {tensor}, which autocast made on {early} and keeps for every stream, without having "
    "waited for {early}: turn that cache off in the side streams, with "
    "`no_shared_casts(journey.real.device.type)`, which is torch.autocast(..., cache_enabled=False).",
    "record_stream": "{tensor} lies in memory of {early}, and {late} uses it, too: call .record_stream({late_name}) on "
    "it, or {early} may hand that memory out again before {late} has finished.",
}


@dataclass(frozen=True)
class Race:
    """Two streams that use the same memory in no order.

    `kind` says which wait is missing: "before" (a side stream does not wait for main), "after" (main does not
    wait for a side stream), "between" (side streams), "cast cache" (over a weight that autocast copied on a side
    stream), "record_stream" (the allocator may hand out the memory too early).
    """

    kind: str
    tensor: str  # the first tensor it was seen on
    streams: tuple[str, str]  # the stream that came first (or owns the memory), and the stream that did not wait
    message: str


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


class Use(NamedTuple):
    """How a stream used a part of a memory: `begin` and `end` are bytes, counted from the memory's first."""

    stream: Stream
    begin: int
    end: int
    writes: bool

    @classmethod
    def of(cls, tensor: Tensor, stream: Stream, writes: bool) -> Use:
        """The use of a tensor that is not empty. What lies between its numbers, as in a column, counts as used."""
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        begin = int(tensor.storage_offset())
        return cls(stream, begin * tensor.element_size(), (begin + last + 1) * tensor.element_size(), writes)

    def races(self, other: Use) -> bool:
        """Whether the order of the two matters."""
        return (self.writes or other.writes) and self.begin < other.end and other.begin < self.end


class Memory:
    """The memory that a tensor shares with its views: its owner, and when each stream last used which part of it."""

    def __init__(self, name: str, owner: Stream, tick: int, tensor: Tensor, is_cast: bool = False):
        self.name, self.owner, self.is_cast = name, owner, is_cast
        self.storage = tensor.untyped_storage()  # held, so that no other memory gets its address
        self.uses = {Use.of(tensor, owner, True): tick}  # the number of the operation that did so last
        self.marked: set[Stream] = set()  # by record_stream

    def used(self, use: Use, tick: int) -> None:
        """Notes a use. A write replaces what is known of its part: it comes after all of that, or races."""
        if use.writes:
            self.uses = {old: at for old, at in self.uses.items() if (old.begin, old.end) != (use.begin, use.end)}
        self.uses[use] = tick


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a nest of lists, tuples and dictionaries, without the empty ones."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes()]


def address(tensor: Tensor) -> int:
    """The address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def changed_in_place(operation: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that `operation` writes to, according to its schema."""
    schema = operation._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
    writes = {argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write}
    return [value for name, value in given.items() if name in writes]


class Sighting(NamedTuple):
    """One use of a memory that is in no order with an earlier use."""

    kind: str
    memory: Memory
    early: Stream
    late: Stream
    writes: bool = False

    @property
    def pair(self) -> frozenset[Stream]:
        return frozenset((self.early, self.late))


class RaceRecorder(TorchDispatchMode):
    """Sees every operation on tensors, below autograd and autocast, and keeps the clocks.

    It keeps the memory of all tensors that it has seen, so that no address is used twice.
    """

    def __init__(self, named: dict[str, Tensor]):
        super().__init__()
        self.clocks = VectorClocks()
        self.main = self.clocks.main
        self.memory: dict[int, Memory] = {}  # by address
        self.lent: dict[Memory, None] = {}  # to other streams, in the order it was
        self.sightings: list[Sighting] = []
        for name, tensor in named.items():
            if tensor.untyped_storage().nbytes():
                self.memory[address(tensor)] = Memory(name, self.main, 1, tensor)

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        changed = tensors(changed_in_place(operation, args, kwargs))
        self.of((args, kwargs))
        made = [tensor for tensor in tensors(result) if address(tensor) not in self.memory]
        asks = operation in READ_BY_HOST
        if made or changed or asks:  # otherwise the result is a view: no work for the device
            stream = self.clocks.launch()
            written = {id(tensor) for tensor in changed}
            for tensor in tensors((args, kwargs)):
                self.use(tensor, stream, writes=id(tensor) in written)
            for tensor in made:
                self.memory[address(tensor)] = self.made_by(operation, self.of((args, kwargs)), tensor, stream)
            if asks:  # the host waits for the stream that it asks on, and for no other
                self.clocks.host_waits(self.clocks.point(stream))
        return result

    def use(self, tensor: Tensor, stream: Stream, writes: bool) -> None:
        """A read has to come after earlier writes to the same part, and a write after every earlier use of it."""
        memory, use = self.memory[address(tensor)], Use.of(tensor, stream, writes)
        clock = self.clocks.of[stream]
        for early, tick in memory.uses.items():
            if use.races(early) and clock[early.stream] < tick:
                kind = self.kind(early.stream, stream, memory)
                self.sightings.append(Sighting(kind, memory, early.stream, stream, writes))
        memory.used(use, clock[stream])
        if stream is not memory.owner:
            self.lent[memory] = None

    def kind(self, early: Stream, late: Stream, memory: Memory) -> str:
        """The kind of race, see `Race`, if `late` has not waited for `early`."""
        if early is self.main:
            return "before"
        return "cast cache" if memory.is_cast else "after" if late is self.main else "between"

    def made_by(self, operation: Any, used: list[Memory], tensor: Tensor, stream: Stream) -> Memory:
        """The memory of a result: the current stream allocates and writes it."""
        name = f"the result of {operation.overloadpacket.__name__} on {stream.name}"
        if is_cast := operation is torch.ops.aten._to_copy.default:
            name = f"the {str(tensor.dtype).removeprefix('torch.')} copy of {used[0].name}"
        return Memory(name, stream, self.clocks.of[stream][stream], tensor, is_cast)

    def of(self, tree: Any) -> list[Memory]:
        """The memory of every tensor in `tree`, each once."""
        for tensor in tensors(tree):
            if address(tensor) not in self.memory:
                self.memory[address(tensor)] = Memory("a tensor from before", self.main, 1, tensor)
        return list(dict.fromkeys(self.memory[address(tensor)] for tensor in tensors(tree)))

    def name_output(self, name: str, network: nn.Module, inputs: Any, output: Any) -> None:
        """A forward hook: gives the output of a network a name like "G_A(real_a)"."""
        for memory in self.of(output):
            memory.name = f"{name}({', '.join(memory.name for memory in self.of(inputs))})"

    @contextmanager
    def watching(self, networks: dict[str, nn.Module], device: torch.device) -> Iterator[None]:
        """Inside, it sees the operations and waits of a program that believes it has a GPU."""

        def record_stream(tensor: Tensor, stream: Stream) -> None:
            for memory in self.of(tensor):
                memory.marked.add(own(stream))

        asks_autocast = torch.is_autocast_enabled
        others: dict[tuple[Any, str], Any] = {
            (torch.cuda, "is_available"): lambda: True,
            # The program may name "cuda" where the real device is another.
            (torch.autocast, "__init__"): redirected(torch.autocast.__init__, "cuda", device.type),
            (torch, "is_autocast_enabled"): lambda device_type=None: asks_autocast(device.type),
            (torch, "get_autocast_dtype"): redirected(torch.get_autocast_dtype, "cuda", device.type),
            (Tensor, "is_cuda"): property(lambda tensor: True),
            (Tensor, "record_stream"): record_stream,
        }
        with ExitStack() as stack:
            stack.enter_context(stubs_for_cuda(self.clocks, others))
            for name, network in networks.items():
                stack.enter_context(network.register_forward_hook(functools.partial(self.name_output, name)))
            stack.enter_context(self)
            yield

    def races(self) -> list[Race]:
        """One race for each kind and pair of streams, in the order they were seen, but with "record_stream" last."""
        grouped = defaultdict(list)
        for sighting in [*self.sightings, *self.lent_memory()]:
            grouped[sighting.kind, sighting.pair].append(sighting)
        return [as_race(sightings) for sightings in grouped.values()]

    def lent_memory(self) -> Iterator[Sighting]:
        """Memory that its owner may hand out again at the end, although another stream may still use it.

        If a wait is missing between two streams, we do not look at the memory that they lend each other as well.
        """
        racing = {sighting.pair for sighting in self.sightings}
        for memory in self.lent:
            finished = self.clocks.of[memory.owner] | self.clocks.host
            late = {use.stream for use, tick in memory.uses.items() if finished[use.stream] < tick}
            for user in sorted(late - memory.marked, key=lambda stream: stream.number):
                if frozenset((memory.owner, user)) not in racing:
                    yield Sighting("record_stream", memory, memory.owner, user)


def as_race(sightings: list[Sighting]) -> Race:
    """The race that sightings of one kind between the same streams are: the first of them names it."""
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


def record(program: Callable[..., T], model: nn.Module, /, **given: Tensor) -> tuple[RaceRecorder, T]:
    """Watches ``program(**given)``, and returns its result, too. The program may keep stub streams.

    Raises:
        StreamError: as for `find_races`.
    """
    recorder = RaceRecorder({**given, **dict(model.named_parameters()), **dict(model.named_buffers())})
    with recorder.watching(dict(model.named_children()), next(iter(given.values())).device):
        return recorder, program(**given)


def find_races(program: Callable[..., Any], model: nn.Module, /, **given: Tensor) -> list[Race]:
    """The races in ``program(**given)``: any function that launches work on CUDA streams, without a backward pass.

    Works without a GPU: while it runs, stubs replace streams and events, and tensors say that they are on CUDA. No
    backward pass needs a check: autograd runs each of its operations on the stream of the forward operation, and makes
    these streams wait for each other.

    Args:
        program: makes its streams itself. A step that has kept them is of no use on a GPU afterwards.
        model: holds the networks. Messages name their weights and outputs as it does.
        given: at least one tensor, by the names that messages use.

    Raises:
        StreamError: the program uses a CUDA stream that was made before.
    """
    return record(program, model, **given)[0].races()
