"""Checks of notebook 03b: what bounds a training, recordings with a hidden fault, a loop's faults."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from pandas import DataFrame
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labcourse.check.answers import ask, drawn, exercise, expect, guarded, require, require_kind
from labcourse.partner import CAUSES, IN_A_ROUND, sparring_partner
from labcourse.patients import at_a_glance
from labcourse.shipped import public_trace
from labkit.models.cyclegan import CycleGAN
from labkit.simulate import replay, step_operators
from labtrace.replay.trace_file import write_trace
from labtrace.trace import Trace

ADVICE = {
    "compute": "The GPU is hardly ever idle, and computes.",
    "data": "The gaps that begin in a loader, whatever its name, hold most of the idle time: add up their `us`.",
    "host": "All other gaps together are much longer than those that begin while data is loaded.",
    "start-up": "Most of the idle time is over before a quarter of the kernels has begun, whatever the host did then.",
    "communication": "For a third of the time or more, and for longer than it is idle, the GPU only communicates.",
}
Span = tuple[float, float]
SMALL, MOST, QUARTER = (0.0, 0.06), (0.8, 0.98), (0.1, 0.4)  # shares
# A training: its bottleneck; the ranges of `idle`, `exposed` and `first` as `labcourse.at_a_glance` has them; of the
# gaps that begin while data is loaded, and of others, number and us.
Patient = tuple[str, Span, Span, Span, tuple[int, float, float], tuple[int, float, float]]
PATIENTS: list[Patient] = [
    ("compute", (0.01, 0.06), (0.0, 0.2), MOST, (2, 3e3, 5e3), (90, 1, 9)),
    ("data", (0.4, 0.6), SMALL, QUARTER, (4, 4e4, 9e4), (900, 2, 9)),
    ("data", (0.3, 0.4), SMALL, QUARTER, (3, 5e3, 9e3), (90, 2, 9)),
    ("host", (0.4, 0.7), SMALL, QUARTER, (0, 0, 1), (500, 20, 60)),
    ("host", (0.4, 0.7), SMALL, QUARTER, (1, 1e4, 2e4), (2000, 40, 60)),
    ("host", (0.3, 0.4), SMALL, QUARTER, (9, 20, 30), (300, 40, 60)),
    ("start-up", (0.4, 0.9), SMALL, MOST, (1, 4e5, 9e5), (300, 2, 9)),
    ("start-up", (0.4, 0.9), SMALL, MOST, (3, 5e3, 9e3), (20, 4e4, 9e4)),
    ("communication", (0.01, 0.06), (0.4, 0.7), MOST, (2, 3e3, 5e3), (90, 1, 9)),
    ("communication", (0.25, 0.3), (0.4, 0.6), QUARTER, (3, 5e3, 9e3), (90, 2, 9)),
    ("host", (0.55, 0.6), (0.34, 0.4), QUARTER, (2, 20, 30), (300, 40, 60)),
]
BY_OTHERS = {  # recordings for `labcourse.public_trace`, and what bounds each
    "resnet50_workers0": "data",
    "a100_streams": "host",
    "v100_nanoseconds": "compute",
    "rtx5080_launch_by_launch": "host",
}
LOADERS = [f"enumerate(DataLoader)#_{how}DataLoaderIter.__next__" for how in ("SingleProcess", "MultiProcessing")]
ELSEWHERE = [
    *("DistributedDataParallel.forward", "## all2all_tw_data:init ##", "## backward ##", "(none)"),
    *("data_parallel.forward", "dataset_statistics"),
]


def _other_patients(random: Random) -> list[Patient]:
    """Other trainings, to `diagnose`: neither the number of the gaps nor the largest of them says what bounds one."""
    kinds: dict[str, tuple[Span, Span, Span, tuple[int, ...]]] = {
        "compute": (SMALL, (0.0, 0.25), (0.1, 0.98), (0, 1)),
        "data": ((0.3, 0.7), SMALL, QUARTER, (0,)),
        "host": ((0.3, 0.7), SMALL, QUARTER, (1,)),
        "start-up": ((0.3, 0.9), SMALL, MOST, (0, 1)),
        "communication": ((0.01, 0.3), (0.4, 0.7), (0.1, 0.98), (0, 1)),
    }
    found: list[Patient] = []
    for bound, (idle, exposed, first, places) in kinds.items():
        for most_us, most_gaps in itertools.product(places, (0, 1)):
            us = 10 ** random.uniform(4, 6)
            numbers = [random.randrange(*((90, 2000) if place == most_gaps else (1, 10))) for place in (0, 1)]
            means = [us / n / (1 if place == most_us else 10) for place, n in enumerate(numbers)]
            in_data, others = ((n, 0.8 * mean, 1.2 * mean) for n, mean in zip(numbers, means, strict=True))
            found.append((bound, idle, exposed, first, in_data, others))
    random.shuffle(found)
    return found


def _ask_for_bound(
    answer: Callable, shares: Sequence[float], gaps: DataFrame, loader: str, bound: str, where: str = ""
) -> None:
    idle, exposed, first = shares
    data_share = gaps.loc[gaps["range_at_begin"] == loader, "us"].sum() / gaps["us"].sum()
    where += f"idle {idle:.0%}, exposed {exposed:.0%}, first {first:.0%} of that, {data_share:.0%} of it in {loader}"
    unknown = (lambda got, _: got not in ADVICE, f"That is none of the words: {', '.join(ADVICE)}.")
    waits = (
        lambda got, right: got == "compute" and right != "communication",
        "The GPU waits for so long that its own work is not the limit.",
    )
    exposed_less = (
        lambda got, right: got == "communication" and right != "compute",
        "Communication is the limit only if it is exposed for longer than the GPU is idle.",
    )
    early = (
        lambda got, right: got == "start-up" and right != "compute",
        "Most of the idle time is later: that is no start-up.",
    )
    others = gaps.loc[gaps["range_at_begin"] != loader, "range_at_begin"]
    named = (
        lambda got, _: got == "data" and loader != "data" and others.str.contains("data").any(),
        "All other gaps together are longer than those in a loader: not each name with `data` in it is one.",
    )
    expect(ask(answer, *shares, gaps), bound, [unknown, waits, exposed_less, early, named], ADVICE[bound], where)


def _ask_for_patients(answer: Callable, loaders: list[str], elsewhere: list[str]) -> None:
    random = drawn(Random(0), lambda random: random)
    for place, (bound, *spans, in_data, others) in enumerate(drawn(PATIENTS, _other_patients)):
        loader = loaders[place % len(loaders)]
        for other in elsewhere if bound == "host" else elsewhere[place % len(elsewhere) :][:1]:
            rows = [
                {"us": random.uniform(low, high), "cause": "host_wait", "range_at_begin": name}
                for name, (n, low, high) in ((loader, in_data), (other, others))
                for _ in range(n)
            ]
            gaps = DataFrame(rows).sort_values("us", ascending=False, ignore_index=True)
            _ask_for_bound(answer, [random.uniform(*span) for span in spans], gaps, loader, bound)


@exercise()
def diagnose(answer: Callable[[float, float, float, DataFrame], str]) -> None:
    """Compares ``answer(idle, exposed, first, gaps)`` with the bottleneck of trainings that differ clearly."""
    _ask_for_patients(answer, ["data"], ["generators backward"])


@cache
def _recorded(name: str) -> tuple[list[float], DataFrame]:
    *shares, gaps = at_a_glance(public_trace(name))
    return shares, gaps


@exercise()
def diagnose_recorded(answer: Callable[[float, float, float, DataFrame], str]) -> None:
    """As `diagnose`, of recordings by others, whose ranges have other names."""
    for name, bound in drawn(BY_OTHERS, lambda random: {}).items():
        _ask_for_bound(answer, *_recorded(name), LOADERS[0], bound, f"{name}, ")
    _ask_for_patients(answer, [*LOADERS, "data"], ELSEWHERE)


def unknown_traces(folder: Path | str) -> dict[str, Trace]:
    """Three SIMULATED traces to diagnose, by name. They are written to `folder`."""
    operators = {batch_size: step_operators(CycleGAN(), batch_size=batch_size) for batch_size in (1, 4)}
    played = {
        "A": replay(operators[4], host_us=6.0),
        "B": replay(operators[1], host_us=6.0, data_us=90_000.0, steps=4),
        "C": replay(operators[1], host_us=60.0),
    }
    return {name: Trace(write_trace(one, Path(folder, f"{name}.json.gz"))) for name, one in played.items()}


LOOK = {  # where one sees each cause of `CAUSES`
    "loading of data": "Take the longest gaps: in which range or call do they begin, and what does that do?",
    "launching": "Add up the gaps and compare the largest: are they few, or does the GPU wait before each kernel?",
    "waits of the host": "Take any gap: which call of the host had just returned, and for what had it waited?",
    "other work of the host": "Take the longest gaps: what does the host do meanwhile? In how many of the steps?",
    "copies": "Add up the GPU's time by name: is all of it computation?",
    "kernels": "Add up the GPU's time by name: which one has most of it, and is it as fast as it could be?",
    "start-up": "When do the longest gaps come: in each step, or once, at the beginning?",
    "communication and ranks": "Add up the GPU's time by name: is all of it computation, and if not, is it hidden?",
    "nothing": "How long does the GPU wait, and which of its kernels could be faster? Not every training is ill.",
}


@exercise(again=False)
def my_diagnoses(answer: Callable[[], dict[int, tuple[str, float]]]) -> None:
    """Compares the cause and the gain that ``answer()`` has for each of six recordings with the truth."""
    got = ask(answer)
    told = f"give {IN_A_ROUND} recordings, as {{number: (cause, times faster)}}, the first a multiple of {IN_A_ROUND}."
    numbers = sorted(got) if isinstance(got, Mapping) and all(isinstance(one, Integral) for one in got) else []
    first = numbers[0] if numbers else 1
    require(first % IN_A_ROUND == 0 and numbers == [*range(first, first + IN_A_ROUND)], told)
    for number, said in got.items():
        where = f"recording {number}"
        require(isinstance(said, tuple) and len(said) == 2, f"{where}: give a pair, (cause, times faster).")
        with TemporaryDirectory() as folder:
            partner = sparring_partner(number, folder)
        unknown = (lambda got, _: got not in CAUSES, f"That is none of these: {', '.join(CAUSES)}.")
        expect(said[0], partner.planted.fault.cause, [unknown], LOOK[partner.planted.fault.cause], where)
        require_kind(said[1], "a number", f"times faster; {where}")
        told = f"{where}: {said[0]} is right, {said[1]:g} times faster is far off. What is the wall time without it?"
        require(partner.near(said[1]), told)


class _Watched(TorchDispatchMode):
    """Notes "picture copied" (one alone, to another type or device), and "value read" (by the host).

    Integers do not count, which come from no loss: a `DataLoader` reads one each epoch, its seed.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.events = size, list[str]()  # numbers in a picture

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "aten::_to_copy" and args[0].numel() == self.size:
            self.events.append("picture copied")
        if func.name() == "aten::_local_scalar_dense" and args[0].dtype != torch.int64:
            self.events.append("value read")
        return func(*args, **kwargs or {})

    def to_host(self, name: str, method: Callable[..., Any]) -> Any:
        """A tensor's method that notes "value read" too, where a processor has nothing to copy."""

        def noted(tensor: Tensor, *settings: Any, **named: Any) -> Any:
            if tensor.dim() < 2 and (name != "to" or "cpu" in map(str, settings)):  # a loss, or a list of losses
                self.events.append("value read")
            return method(tensor, *settings, **named)

        return noted


@exercise()
def repaired_loop(answer: Callable[..., list[float]]) -> None:
    """Counts what ``answer(net, optimizer, files, read, epochs, device)`` does, and compares its losses.

    Raises:
        WrongAnswer: it reads a file twice, copies picture by picture, reads a loss before the last step, or does not
            return the losses of the same steps.
    """
    number, epochs = drawn((10, 3), lambda random: (random.choice((18, 22, 23)), random.choice((2, 4))))
    pictures = {f"{place}.jpg": torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8) for place in range(number)}
    net, reads, watched = nn.Conv2d(3, 3, 3, padding=1), list[str](), _Watched(3 * 8 * 8)
    its_net = deepcopy(net)

    def read(file: str) -> Tensor:
        reads.append(file)
        return pictures[file].clone()

    its_optimizer, files = torch.optim.SGD(its_net.parameters(), lr=0.1), [*pictures]
    its_optimizer.register_step_post_hook(lambda *_: watched.events.append("step"))
    methods = {name: watched.to_host(name, getattr(Tensor, name)) for name in ("cpu", "numpy", "to", "tolist")}
    with guarded(answer, its_net, files), watched, patch.multiple(Tensor, **methods):
        got = answer(its_net, its_optimizer, files, read, epochs, "cpu")
    optimizer, right = torch.optim.SGD(net.parameters(), lr=0.1), []
    for _ in range(epochs):
        for some in torch.stack([*pictures.values()]).split(4):
            batch = some / 255
            loss = (net(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right.append(loss.item())
    steps = len(right)
    told = f"return a list of all {steps} losses: {epochs} epochs, 4 of {number} pictures a step, the rest in the last."
    require(isinstance(got, list) and len(got) == steps, told)
    require(all(isinstance(one, Real) for one in got), "the losses should be numbers: read them after the loop.")
    same = all(math.isclose(one, other, rel_tol=1e-5) for one, other in zip(got, right, strict=True))
    require(same, "the losses differ from those of the loop above: keep the order of the pictures, and all steps.")
    twice = f"{len(reads)} pictures were read, and there are {number}: read each once, before the first epoch."
    require(len(reads) == number, twice)
    events = watched.events
    require("step" in events, "the optimizer that the loop was given has taken no step.")
    seen = events[: len(events) - 1 - events[::-1].index("step")]
    alone, waits = seen.count("picture copied"), seen.count("value read")
    require(alone == 0, f"{alone} pictures were copied one by one: stack them first, and copy a batch at once.")
    told = (
        f"a loss is read {waits} times before the last step, with .item() or .cpu(): the host waits, so read it later."
    )
    require(waits == 0, told)
