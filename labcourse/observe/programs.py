"""What is seen of an answer that is a program: a stopwatch, a training loop, a step to replay, a kernel, an entry."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable
from functools import partial, partialmethod
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from pandas import DataFrame
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labcourse.blocks import OutOfBounds, launch
from labcourse.observe.mistake import MistakeFound
from labcourse.speedrun.race_judge import RaceJudge
from labcourse.stand_ins import FakeGPU, fresh_memory, replay_side_by_side
from labkit.errors import LabkitError

MOST_CALLS = 1000  # of a training's steps and checkpoints


def turns(answer: Callable, names: list[str], rounds: int, warmup: int, slower: float) -> tuple[Any, list[str]]:
    """What ``answer(steps, rounds, warmup, synchronise, clock)`` measures, and the calls that it made, in their order.

    The fake GPU is busy at first, and slow for two rounds. The first step takes `slower` seconds, the second twice as
    many, and so on.
    """
    gpu, calls = FakeGPU(), []
    gpu.launch(7.0)

    def step(name: str, seconds: float) -> None:
        calls.append(name)
        gpu.launch(seconds + (4.0 if calls.count(name) <= 2 else 0.0))

    def clock() -> float:
        calls.append("clock")
        return gpu.clock()

    steps = {name: partial(step, name, place * slower) for place, name in enumerate(names, 1)}
    return answer(steps, rounds=rounds, warmup=warmup, synchronise=gpu.synchronise, clock=clock), calls


def busy_of_work(answer: Callable[[Any, float, int], Any], kernel_s: float, kernels: int, launch_s: float) -> Any:
    """What ``answer(gpu, kernel_s, kernels)`` returns for a fake GPU that still has work of 7 seconds.

    The GPU is seen by its three methods alone.
    """
    gpu = FakeGPU(launch_s)
    gpu.launch(7.0)
    return answer(SimpleNamespace(launch=gpu.launch, synchronise=gpu.synchronise, clock=gpu.clock), kernel_s, kernels)


def profiled_calls(
    answer: Callable[[Callable[[], None], int, int], Any], warmup: int, steps: int
) -> tuple[list[tuple[str, float, float]], int]:
    """The events in the profiler that ``answer(step, warmup, steps)`` returns, and how often it has called `step`.

    Call k of `step` makes a range named "call k", from 0 on. An event is its name, its begin and its end.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler prints that there is no GPU
    calls = itertools.count()

    def step() -> None:
        with torch.profiler.record_function(f"call {next(calls)}"):
            torch.ones(2).sum()

    events = answer(step, warmup, steps).events()
    return [(one.name, one.time_range.start, one.time_range.end) for one in events], next(calls)


def fakes_seen(answer: Callable[[int], Callable[[Tensor], Tensor]], size: int, numbers: list[int]) -> list[list[float]]:
    """For each of `numbers`, the numbers of the fakes that a pool ``answer(size)`` returns for so many new ones."""
    pools = [(answer(size), range(number)) for number in numbers]
    return [[pool(torch.full((1, 3, 2, 2), float(new)))[0, 0, 0, 0].item() for new in fakes] for pool, fakes in pools]


class _Watched(TorchDispatchMode):
    """Notes copies of tensors of `size` numbers to another type or device, and numbers that are read.

    Integers do not count, which come from no loss: a `DataLoader` reads one each epoch, its seed.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.events = size, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "aten::_to_copy" and args[0].numel() == self.size:
            self.events.append("picture copied")
        if func.name() == "aten::_local_scalar_dense" and args[0].dtype != torch.int64:
            self.events.append("value read")
        return func(*args, **kwargs or {})


def training_loop(
    answer: Callable[..., Any], weight: Tensor, bias: Tensor, pictures: dict[str, Tensor], epochs: int
) -> tuple[Any, list[str], list[str]]:
    """What ``answer(net, optimizer, files, read, epochs, device)`` returns, the files it read, and events in order.

    An event is "picture copied" (one alone, to another type or device), "step" (of the optimiser), or "value read" (by
    the host: also with .tolist(), and with .cpu(), .to("cpu") and .numpy(), which on a processor read nothing).
    """
    reads: list[str] = []
    watched = _Watched(next(iter(pictures.values())).numel())

    def read(file: str) -> Tensor:
        reads.append(file)
        return pictures[file].clone()

    to = Tensor.to

    def to_host(method: Callable[..., Any], tensor: Tensor, *settings: Any, **named: Any) -> Any:
        if tensor.dim() < 2 and (method is not to or "cpu" in map(str, settings)):  # a loss, or a list of losses
            watched.events.append("value read")
        return method(tensor, *settings, **named)

    class CountedSGD(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            watched.events.append("step")
            return super().step(closure)

    net = nn.Conv2d(3, 3, 3, padding=1)
    net.load_state_dict({"weight": weight, "bias": bias})
    stubs: Any = {
        name: partialmethod(partial(to_host, getattr(Tensor, name))) for name in ("cpu", "numpy", "to", "tolist")
    }
    with watched, patch.multiple(Tensor, **stubs):
        got = answer(net, CountedSGD(net.parameters(), lr=0.1), [*pictures], read, epochs, "cpu")
    return got, reads, watched.events


def machines_lost(
    answer: Callable[..., Any], steps: int, every: int, lost: list[int], begun: int, start: Tensor
) -> tuple[Any, list[tuple[str, list[float]]]]:
    """The state that ``answer(steps, every, step, save, load)`` returns, and its calls of `step` and `save`.

    A call has the state's numbers beside it. The last of them is the machine's, which changes with each loss.

    Args:
        lost: the calls, counted from 0, in which a machine is lost.
        begun: the steps of the first checkpoint, and `start` its state.
    """
    kept, calls, machines = (start, begun), [], itertools.count()
    machine = next(machines)

    def call(words: str, state: Tensor) -> None:
        nonlocal machine
        calls.append((words, state.tolist()))
        if len(calls) - 1 in lost:
            machine = next(machines)
            raise ConnectionError("the machine is lost")
        if len(calls) > MOST_CALLS:
            raise MistakeFound("it does not come to an end: when are all steps done?")

    def step(state: Tensor, k: int) -> Tensor:
        before = state.clone()
        state[:-1].mul_(1.5).add_(k)
        call(f"step(state, {k})", before)
        return state

    def save(state: Tensor, done: int) -> None:
        nonlocal kept
        call(f"save(state, {done})", state)
        kept = state.clone(), done

    def load() -> tuple[Tensor, int]:
        return torch.cat([kept[0][:-1], torch.tensor([float(machine)])]), kept[1]

    return answer(steps, every, step, save, load), calls


def replays(
    answer: Callable[[Tensor, SimpleNamespace], Tensor], inputs: list[Tensor]
) -> tuple[list[Tensor], list[Tensor] | str, bool]:
    """A step's results called and replayed, as of `replay_side_by_side`, and whether later calls leave earlier ones."""
    called, replayed = replay_side_by_side(answer, inputs)
    memory = fresh_memory(inputs[0])
    results = [(result := answer(a, memory), result.clone()) for a in inputs]
    return called, replayed, all(torch.equal(result, before) for result, before in results)


def captures(
    answer: type, example: Tensor, inputs: list[Tensor], others: list[Tensor], less: float, times: float
) -> dict[str, Any]:
    """What a class does that records ``relu(a - less) * times + total`` for `example`, and replays it for each input.

    `total` is 1 when the body has run once, and grows by 1 each time.

    Returns:
        | key | meaning |
        |---|---|
        | results | for each of the inputs, and after `others` for the second again |
        | kept | the first result after the other calls |
        | bodies | how often the body has run when the class was made, and at the end |
        | example_kept | whether the example is as it was |
        | for_others | for inputs of other shapes the error that came, "" if none did |
    """
    bodies, results, total = list[Tensor](), list[Any](), torch.zeros(())

    def body(a: Tensor) -> Tensor:
        bodies.append(a)
        return torch.relu(a - less) * times + total.add_(1)

    def call(a: Tensor) -> Any:
        result = capture(a)
        results.append(result.clone() if isinstance(result, Tensor) else result)
        return result

    given = example.clone()
    capture = answer(body, given)
    recorded = len(bodies)
    answer(torch.neg, given)  # another one, which is to share nothing with the first
    kept, *_ = map(call, inputs)
    errors = []
    for other in others:
        try:
            capture(other)
            errors.append("")
        except Exception as error:
            errors.append(repr(error))
    call(inputs[1])
    seen = {"results": results, "kept": kept, "bodies": (recorded, len(bodies)), "for_others": errors}
    return seen | {"example_kept": torch.equal(given, example)}


def launched(
    answer: Callable, programs: int, arguments: list[Any], constants: dict[str, Any], where: str
) -> tuple[list[Tensor], list[str], int]:
    """The tensors among a kernel's arguments after its programs have run.

    Also the places that several programs write, and the accesses of that program that has most.

    Args:
        where: the launch in words.

    Raises:
        MistakeFound: a program uses memory that is not there.
    """
    arguments = [one.clone() if isinstance(one, Tensor) else one for one in arguments]
    try:
        run = launch(answer, programs, *arguments, **constants)
    except OutOfBounds as error:
        told = f"{where}: {error}. The last block goes beyond the last number: {error.kind} only where i < n."
        raise MistakeFound(told) from error
    written = dict.fromkeys((one.place, one.program) for one in run.accesses if one.kind != "load")
    writers = Counter(place for place, _ in written)
    most = max(Counter(one.program for one in run.accesses).values(), default=0)
    tensors = [one for one in arguments if isinstance(one, Tensor)]
    return tensors, [place for place, number in writers.items() if number > 1], most


def saved(description: DataFrame) -> list[tuple[str, Tensor]]:
    """Tensors as `labcourse.saved_tensors` returns them.

    Args:
        description: the kind of each tensor's layer; the number of its memory, its rows of 4 numbers, and its type; and
            which part of the memory it is: "whole", "first row", "other rows", "turned", or a "weight". Memory of an
            odd number has a gradient.
    """
    memories: dict[int, Tensor] = {}
    found: list[tuple[str, Tensor]] = []
    for layer, number, rows, dtype, part in description.itertuples(index=False):
        made = torch.zeros(rows, 4, dtype=getattr(torch, dtype), requires_grad=bool(number % 2)).clone()
        whole = memories.setdefault(number, made)
        parts = {"whole": whole, "first row": whole[:1], "other rows": whole[1:], "turned": whole.T}
        found.append((layer, nn.Parameter(whole, requires_grad=bool(number % 2)) if part == "weight" else parts[part]))
    return found


def kept_of_saved(answer: Callable[[list[tuple[str, Tensor]]], Any], description: DataFrame) -> Any:
    """What ``answer(saved)`` returns for the tensors that are described."""
    return answer(saved(description))


def heats(answer: str, limit: float, seed: int, deciding: int) -> list[dict[str, Any]]:
    """The judge's heats of an entry, given as its text, until so many have reached the goal, or missed it.

    Args:
        limit: of CPU seconds a heat.
        seed: of the heats' seeds.

    Raises:
        MistakeFound: the entry broke a rule, or stopped with an error.
    """
    draws = Random(seed)
    found: list[dict[str, Any]] = []
    try:
        judge = RaceJudge(limit=limit)
        while all([heat["reached"] for heat in found].count(reached) < deciding for reached in (True, False)):
            heat = judge.heat(answer, draws.randrange(2**31))
            print(heat)
            found.append({"reached": heat.reached, "seconds": heat.seconds})
    except LabkitError as error:
        what, *lines = str(error).splitlines()
        raise MistakeFound(f"{what} {' '.join(lines[-3:])[-200:]}".strip()) from error
    return found
