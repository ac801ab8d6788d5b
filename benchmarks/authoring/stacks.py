"""Stacks of speed-ups on whole steps: in turn with the best one before, and whether they train alike."""

import copy
import functools
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.authoring.plan import BEST, Item, Stack
from labkit.data.batches import to_float
from labkit.data.fruit import training_pictures
from labkit.measure import alternate
from labkit.measure.record import Pair
from labkit.measure.same import Update
from labkit.models.step import Step

Found = Iterator[tuple[dict, str]]  # a row as far as it is known, and the result in words

PAIRS = 20  # of pictures to train on
EACH = 5  # updates of which one is kept


def step_of(item: Item, stack: Stack, device: torch.device) -> Step:
    """The item's step with this stack, less what only a GPU has."""
    acting = tuple(name for name in stack if device.type == "cuda" or name not in ("graph", "streams"))
    return replace(item, speedups=acting).step(device)


def with_streams(item: Item) -> dict[str, Stack]:
    """The item's stack, and the same on several streams where that may help: with small batches."""
    several = item.batch_size == 1 and "nhwc" in item.speedups
    return {"new": item.speedups} | ({"new, streams": (*item.speedups, "streams")} if several else {})


# ---- how fast?


def in_turn(item: Item, device: torch.device, out: Path) -> Found:
    """The best stack so far and the item's in turn, in one process. The plain step comes first and last.

    What the plain step takes tells how this machine, on this day, compares with others. A stack that fails costs
    itself only.
    """
    batch, found = item.batch(device), {}
    turns = [({"plain, first": ()}, 3), ({"old": BEST} | with_streams(item), item.steps), ({"plain, last": ()}, 3)]
    for stacks, rounds in turns:
        runs: dict[str, Callable[[], object]] = {}
        for label, stack in stacks.items():
            try:
                step, found[label] = warmed(item, stack, device, batch)
                runs[label] = functools.partial(step, *batch)
            except Exception as error:
                found[label] = {"stack": stack, "fails": f"{type(error).__name__}: {error}"[:400]}
            yield found, ""
        for turn in range(rounds):
            order = dict(list(runs.items())[:: 1 if turn % 2 else -1])
            for label, seconds in alternate(order, rounds=1, warmup=0).items():
                found[label]["ms"].append(1e3 * seconds[0])
            yield found, ""
        runs, order, step = {}, {}, None
        gc.collect()  # a step and its optimisers refer to each other
    medians = {label: statistics.median(row["ms"]) for label, row in found.items() if row.get("ms")}
    yield found, ", ".join(f"{label} {ms:.2f} ms" for label, ms in medians.items())


def warmed(item: Item, stack: Stack, device: torch.device, batch: Pair) -> tuple[Step, dict]:
    """A step after its first calls, of a graph two ordinary ones, the recording and a replay; and what they gave."""
    began, step = time.perf_counter(), step_of(item, stack, device)
    for _ in range(4 if device.type == "cuda" else 1):
        losses = step(*batch)
    values = {name: loss.item() for name, loss in losses.items()}
    return step, {"stack": stack, "setup_s": time.perf_counter() - began, "losses": values, "ms": []}


# ---- does it train alike?


def replays(item: Item, device: torch.device, out: Path) -> Found:
    """First updates against the plain one in float32 on a processor; then a replay against a step without a graph.

    The replay is the graph's after so many steps. From the same state the step without a graph goes on twice, which
    shows how much of the difference is rounding.
    """
    found: dict[str, dict] = {}
    reference, batch = step_of(item, (), torch.device("cpu")), item.batch(torch.device("cpu"))
    weights = copy.deepcopy(reference.model.state_dict())
    right = Update.of(reference, batch)
    for label, stack in {"new": item.speedups, "old": BEST}.items():
        step = step_of(item, without_graph(stack), device)
        step.model.load_state_dict(weights)
        mine = Update.of(step, (batch[0].to(device), batch[1].to(device)))
        found[f"first update, {label}"] = mine.distance(right)._asdict()
        yield found, ""
    for label, stack in with_streams(item).items():
        recorded = step_of(item, stack, device)
        for seed in range(item.steps):
            recorded(*item.batch(device, seed=seed))
        state, updates = copy.deepcopy(recorded.state_dict()), []
        for graph in (True, False, False):
            step = recorded if graph else step_of(item, without_graph(stack), device)
            if not graph:
                step.load_state_dict(copy.deepcopy(state))
            updates.append(Update.of(step, item.batch(device, seed=item.steps)))
        found[f"replay, {label}"] = updates[0].distance(updates[1])._asdict()
        found[f"rounding, {label}"] = updates[2].distance(updates[1])._asdict()
        yield found, ""
    yield found, ", ".join(f"{label}: gradients {row['gradients']:.2g} off" for label, row in found.items())


def without_graph(stack: Stack) -> Stack:
    """The stack, each of its steps an ordinary one."""
    return tuple(name for name in stack if name != "graph")


def updates(item: Item, device: torch.device, out: Path) -> Found:
    """Losses of so many updates on the fruit, for each stack from the same weights."""
    domains = training_pictures(PAIRS, item.size, seed=0)
    pairs = [tuple(to_float(one[None].to(device)) for one in pair) for pair in zip(*domains, strict=True)]
    found: dict[str, list] = {}
    for label, stack in {"new": item.speedups, "plain": (), "old": BEST, **with_streams(item)}.items():
        step, found[label] = step_of(item, stack, device), []
        for number in range(item.steps):
            losses = step(*pairs[number % PAIRS])
            if number % EACH == 0:
                found[label].append({name: loss.item() for name, loss in losses.items()})
                yield {"losses": found}, ""
    last = {label: statistics.mean(losses[-1].values()) for label, losses in found.items()}
    yield {"losses": found}, f"means of the last losses {last}"
