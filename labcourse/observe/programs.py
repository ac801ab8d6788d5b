"""What is seen of an answer that is a program: a stopwatch, a training loop, a step to replay, a kernel, an entry."""

from __future__ import annotations

import itertools
import os
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

    The fake GPU is busy at first, and slow for two rounds. The two steps take `slower` and twice as many seconds.
    """
    gpu, calls = FakeGPU(), []
    gpu.launch(7.0)

    def step(name: str, seconds: float) -> None:
        calls.append(name)
        gpu.launch(seconds + (4.0 if calls.count(name) <= 2 else 0.0))

    def clock() -> float:
        calls.append("clock")
        return gpu.clock()

    steps = {name: partial(step, name, seconds * slower) for name, seconds in zip(names, (1.0, 2.0), strict=True)}
    return answer(steps, rounds=rounds, warmup=warmup, synchronise=gpu.synchronise, clock=clock), calls


def busy_of_work(answer: Callable[[FakeGPU, float, int], Any], kernel_s: float, kernels: int) -> Any:
    """What ``answer(gpu, kernel_s, kernels)`` returns for a fake GPU that still has work of 7 seconds."""
    gpu = FakeGPU()
    gpu.launch(7.0)
    return answer(gpu, kernel_s, kernels)


def profiled_calls(
    answer: Callable[[Callable[[], None], int, int], Any], warmup: int, steps: int
) -> tuple[list[str], int]:
    """The names in the profiler that ``answer(step, warmup, steps)`` returns, and how often it has called `step`.

    Call k of `step` makes a range named "call k", from 0 on.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler prints that there is no GPU
    calls = itertools.count()

    def step() -> None:
        with torch.profiler.record_function(f"call {next(calls)}"):
            torch.ones(2).sum()

    profiler = answer(step, warmup, steps)
    return [event.name for event in profiler.events()], next(calls)


def fakes_seen(answer: Callable[[int], Callable[[Tensor], Tensor]], size: int, number: int) -> list[int]:
    """The numbers of the fakes that the pool ``answer(size)`` returns for so many new ones."""
    pool = answer(size)
    return [int(pool(torch.full((1, 3, 2, 2), float(new))).mean()) for new in range(number)]


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
    the host: with .cpu(), .to("cpu") and .numpy() as well, which on a processor read nothing).
    """
    reads: list[str] = []
    watched = _Watched(next(iter(pictures.values())).numel())

    def read(file: str) -> Tensor:
        reads.append(file)
        return pictures[file].clone()

    to = Tensor.to

    def to_host(method: Callable[..., Any], tensor: Tensor, *settings: Any, **named: Any) -> Any:
        if tensor.numel() == 1 and (method is not to or "cpu" in map(str, settings)):
            watched.events.append("value read")
        return method(tensor, *settings, **named)

    class CountedSGD(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            watched.events.append("step")
            return super().step(closure)

    net = nn.Conv2d(3, 3, 3, padding=1)
    net.load_state_dict({"weight": weight, "bias": bias})
    stubs: Any = {name: partialmethod(partial(to_host, getattr(Tensor, name))) for name in ("cpu", "numpy", "to")}
    with watched, patch.multiple(Tensor, **stubs):
        got = answer(net, CountedSGD(net.parameters(), lr=0.1), [*pictures], read, epochs, "cpu")
    return got, reads, watched.events


def machines_lost(
    answer: Callable[..., Any], steps: int, every: int, lost: list[int], start: Tensor
) -> tuple[Any, list[tuple[str, int]]]:
    """The state that ``answer(steps, every, step, save, load)`` returns, and calls in order: a name and a step.

    Args:
        lost: the calls of `step` and `save`, counted from 0, in which a machine is lost: then "lost" follows.
    """
    kept, calls, tries = (start, 0), [], itertools.count()

    def call(name: str, number: int) -> None:
        calls.append((name, number))
        if (now := next(tries)) in lost:
            calls.append(("lost", number))
            raise ConnectionError("the machine is lost")
        if now > MOST_CALLS:
            raise MistakeFound("it does not come to an end: when are all steps done?")

    def step(state: Tensor, k: int) -> Tensor:
        state.mul_(1.5).add_(k)
        call("step", k)
        return state

    def save(state: Tensor, done: int) -> None:
        nonlocal kept
        call("save", done)
        kept = state.clone(), done

    def load() -> tuple[Tensor, int]:
        calls.append(("load", kept[1]))
        return kept[0].clone(), kept[1]

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
    """What a class does that records ``relu(a - less) * times`` for `example`, and replays it for each of two inputs.

    Returns:
        | key | meaning |
        |---|---|
        | results | for the first input, for the second, and after `others` for the second again |
        | kept | the first result after the other calls |
        | bodies | how often the body has run when the class was made, and at the end |
        | example_kept | whether the example is as it was |
        | for_others | for inputs of other shapes the error that came, "" if none did |
    """
    bodies, results = list[Tensor](), list[Any]()

    def body(a: Tensor) -> Tensor:
        bodies.append(a)
        return torch.relu(a - less) * times

    def call(a: Tensor) -> Any:
        result = capture(a)
        results.append(result.clone() if isinstance(result, Tensor) else result)
        return result

    given = example.clone()
    capture = answer(body, given)
    recorded = len(bodies)
    kept, _ = map(call, inputs)
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
) -> tuple[list[Tensor], list[tuple[int, str, str]]]:
    """The tensors among a kernel's arguments after its programs have run, and their accesses.

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
    return [one for one in arguments if isinstance(one, Tensor)], list(run.accesses)


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
        found.append((layer, nn.Parameter(whole) if part == "weight" else parts[part]))
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
        raise MistakeFound(str(error)) from error
    return found
