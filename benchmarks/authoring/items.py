"""What a visit to a GPU measures. See visit.py, which runs each item in a process of its own.

An item is a generator: it fills rows of results.json, leaves alone what an earlier call has found, and yields after
each measurement, in words for the log. Then the file is written.
"""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

import labkit
from labkit.data.fruit import training_pictures
from labkit.measure import copy_rate, flags, matmul_rate, stamp
from labkit.measure.record import Pair, noise, record
from labkit.measure.same import Update
from labkit.measure.timing import alternate, in_order, interval, ratios, synchronise
from labkit.models.step import Step
from labkit.variants import nhwc_norm

Stack = tuple[str, ...]  # names of speed-ups
Found = Iterator[str]

PLAIN: Stack = ()
OLD: Stack = ("graph", "batched", "fused_adam", "out_of_place", "bf16")  # the best one that an H200 has timed
NEW: Stack = ("graph", "nhwc", "batched", "fused_adam", "bf16")
NEW_FLOAT32, STREAMS, COMPILED = NEW[:-1], (*NEW, "streams"), ("graph", "compile", *NEW[2:])
LAUNCHED = NEW[1:]  # the same without its graph

# Settings of CycleGAN, pixels of a picture's side, pictures of either domain in "batch 16", rounds to time there and in
# "batch 1", and updates to train: of a GPU, and of a rehearsal.
FULL = {"generator": "resnet_9blocks"}
TINY = dict(generator="resnet_3blocks", ngf=2, ndf=2, discriminator="n_layers", n_layers=1, pool_size=2)
SIZES = {
    "cuda": SimpleNamespace(settings=FULL, pixels=256, large=16, rounds=(28, 100), updates=200),
    "cpu": SimpleNamespace(settings=TINY, pixels=16, large=2, rounds=(18, 18), updates=6),
}
EARLY = 4  # rounds after each further stack: should the next one end the process, there is something to compare
GRAPHED, RECORDED, PAIRS = 3, 4, 20  # steps before a replay is looked at; steps recorded; pictures to train on


class Place(NamedTuple):
    """Where an item measures, and where it writes."""

    rows: dict[str, Any]  # of results.json
    device: torch.device
    out: Path

    @property
    def size(self) -> SimpleNamespace:
        return SIZES[self.device.type]

    def row(self, key: str, kind: str, **found: Any) -> dict[str, Any]:
        """The row of this name as an earlier call has left it, or a new one with this in it."""
        return self.rows.setdefault(key, {"kind": kind, **found, "stamp": stamp()})

    def step(self, stack: Stack) -> Step:
        """A new step, always with the same weights."""
        torch.manual_seed(0)
        with self.device:  # drawn on the GPU, which is much faster
            model = labkit.CycleGAN(**self.size.settings)
        return labkit.make_step(model, *stack, emulate=True)  # a rehearsal asks whether it runs, not how fast

    def batch(self, large: bool, seed: int = 0) -> Pair:
        return noise(self.size.large if large else 1, self.size.pixels, self.device, seed=seed)


def why(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:400]}"


# ---- the device, and whether steps are right


def device(place: Place) -> Found:
    """FLOP/s of large matrix products by type, and bytes/s of copies."""
    rates = {"float32": matmul_rate(place.device)}
    if place.device.type == "cuda":
        with flags("on"):
            rates["tf32"] = matmul_rate(place.device)
        rates |= {name: matmul_rate(place.device, getattr(torch, name)) for name in ("bfloat16", "float16")}
    row = place.row("device", "device", matmul_flop_per_s=rates, copy_bytes_per_s=copy_rate(place.device))
    yield f"{rates} FLOP/s, {row['copy_bytes_per_s']:.3g} bytes/s"


def right(place: Place) -> Found:
    """How far updates are from what they should be, as `labkit.measure.same.Distance` says it, without TF32.

    The first update, from the plain step's. Then a replay of a graph, from an ordinary step with the same state; and a
    second ordinary one, which shows how much of that is rounding.
    """
    found = place.row("right", "right", updates={})["updates"]
    plain = functools.cache(lambda large: Update.of(place.step(PLAIN), place.batch(large)))
    firsts = {"nhwc": ("nhwc",), "new, float32": NEW_FLOAT32, "new": NEW, "old": OLD}
    firsts |= {"new, float32, large batch": NEW_FLOAT32, "new, large batch": NEW}
    with flags("off"):
        torch.backends.cudnn.benchmark = False  # it would try algorithms for longer than they run here
        for label, stack in firsts.items():
            if label not in found:
                large = label.endswith("large batch")
                mine = Update.of(place.step(stack), place.batch(large))
                found[label] = mine.distance(plain(large))._asdict()
                yield f"{label}: {found[label]}"
        for label, stack in {"new, float32": NEW_FLOAT32, "new": NEW, "new, streams": STREAMS}.items():
            if f"replay, {label}" not in found:
                replay, ordinary, again = replayed(place, stack)
                found[f"rounding, {label}"] = again.distance(ordinary)._asdict()
                found[f"replay, {label}"] = replay.distance(ordinary)._asdict()
                yield f"replay, {label}: {replay.distance(ordinary)}, rounding {found[f'rounding, {label}']}"


def replayed(place: Place, stack: Stack) -> list[Update]:
    """An update that a graph replays, and two ordinary ones from the same state."""
    graph, ordinary = place.step(stack), place.step(stack[1:])  # the same without its graph
    for seed in range(GRAPHED):
        graph(*place.batch(False, seed))
    state = deepcopy(graph.state_dict())
    updates = [Update.of(graph, place.batch(False, GRAPHED))]
    for _ in range(2):
        ordinary.load_state_dict(deepcopy(state))
        updates.append(Update.of(ordinary, place.batch(False, GRAPHED)))
    return updates


# ---- how fast whole steps are, and where their time goes


def in_turn(key: str, stacks: dict[str, Stack], recorded: dict[str, Stack], plain_every: int, place: Place) -> Found:
    """Times stacks of speed-ups in turn, then records some, all in one process. A stack that fails costs itself alone.

    The row has, for each of its "rounds", the milliseconds of each step in it, of the plain one in every so many; under
    "made" the losses of a stack's first step and the seconds that it took to make; under "fails" why one is missing.
    "begun" is the stack that was last made: it fails if the process ends.
    """
    row = place.row(key, "in_turn", stacks=stacks, made={}, fails={}, rounds=[], times_faster={})
    large = key == "batch 16"
    batch, rounds = place.batch(large), place.size.rounds[not large]
    steps: dict[str, Step] = {}

    def time_rounds() -> str:
        for turn in range(len(row["rounds"]), min(len(row["rounds"]) + EARLY, rounds)):
            names = [name for name in steps if turn % plain_every == 0 or name != "plain"] or [*steps]
            order = in_order(names, turn // plain_every if "plain" in names else turn)
            seconds = alternate({name: functools.partial(steps[name], *batch) for name in order}, rounds=1, warmup=0)
            row["rounds"].append({name: 1e3 * one for name, (one,) in seconds.items()})
        return compared(row)

    for label, stack in stacks.items() if len(row["rounds"]) < rounds else ():
        if label in row["fails"]:
            continue
        row["begun"] = label
        yield f"{label}: begins"
        try:
            began, steps[label] = time.perf_counter(), place.step(stack)
            losses = warmed(steps[label], batch)
        except Exception as error:
            steps.pop(label, None)
            row["fails"][label] = why(error)
            synchronise()  # a GPU that has failed for good ends the process here, before it fails the next stack
            continue
        row["made"][label] = {"losses": losses, "setup_s": time.perf_counter() - began}
        for step in steps.values():
            step(*batch)  # untimed: it takes back the memory that `warmed` has given back
        if not any(label in one for one in row["rounds"]):
            yield time_rounds()
    row["begun"] = None
    while steps and len(row["rounds"]) < rounds:
        yield time_rounds()
    for label, stack in recorded.items():
        name = f"recording of {key}, {label}"
        if name not in place.rows and label not in row["fails"]:
            step = steps.get(label) or place.step(stack)
            warmed(step, batch)
            yield recording(place, name, stack, step, batch)


def warmed(step: Step, batch: Pair) -> dict[str, float]:
    """The losses of a step's first call. Of a graph two calls are ordinary, the third is the capture."""
    losses = {name: loss.item() for name, loss in step(*batch).items()}
    step(*batch)
    torch.cuda.empty_cache()  # a capture cannot take what others keep
    for _ in range(2):
        step(*batch)
    synchronise()
    return losses


def compared(row: dict) -> str:
    """Adds to a row the median of each stack, and how many times as fast it is as another, with a 95% interval."""
    labels = dict.fromkeys(label for one in row["rounds"] for label in one)
    row["ms"] = {label: statistics.median(one[label] for one in row["rounds"] if label in one) for label in labels}
    for slow, fast in itertools.combinations(labels, 2):
        both = [(one[slow], one[fast]) for one in row["rounds"] if {slow, fast} <= one.keys()]
        if len(both) >= 6:  # fewer give no interval
            faster = ratios(*map(list, zip(*both, strict=True)))
            row["times_faster"][f"{fast} than {slow}"] = statistics.median(faster), *interval(faster)
    return f"{len(row['rounds'])} rounds, ms {row['ms']}, times faster {row['times_faster']}"


def recording(place: Place, name: str, stack: Stack, step: Step, batch: Pair) -> str:
    """Records a few steps. The row has what `evidence.ship` looks for. A graph has no operators, and so no shapes."""
    path = place.out / f"b{len(batch[0])}_{'-'.join(stack)}.json.gz"
    record(step, batch, path, RECORDED, shapes="graph" not in stack)
    about = {"model": "CycleGAN", "settings": place.size.settings, "size": place.size.pixels, "tf32": "default"}
    about |= {"benchmark": True, "batch_size": len(batch[0]), "speedups": stack}
    place.row(name, "trace", **about, file=path.name)
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB"


# ---- do they train alike?


def updates(place: Place) -> Found:
    """The losses of so many updates on the fruit, from the same weights: plain, without TF32, old and new."""
    found, most = place.row("updates", "updates", losses={})["losses"], place.size.updates
    pairs: Any = list(zip(*training_pictures(PAIRS, place.size.pixels, seed=0), strict=True))
    for label, stack in {"plain": PLAIN, "old": OLD, "new": NEW}.items():
        if label not in found:
            with flags("off"):
                run = labkit.fit(place.step(stack), pairs, most, report_every=most, sample_every=most)
            found[label] = run.losses
            last = {name: round(statistics.mean(losses[most // 2 :]), 3) for name, losses in run.losses.items()}
            yield f"{label}, means of the second half: {last}"


# ---- kernels alone

# In and out channels, kernel, stride, padding, whether transposed, height and width of what comes in, of 256 pixels.
CONVOLUTIONS = {
    "residual": (256, 256, (3, 3), 1, 0, False, 66, 66),
    "down 1": (64, 128, (3, 3), 2, 1, False, 256, 256),
    "down 2": (128, 256, (3, 3), 2, 1, False, 128, 128),
    "up 1": (256, 128, (3, 3), 2, 1, True, 64, 64),
    "up 2": (128, 64, (3, 3), 2, 1, True, 128, 128),
    "first, 7x1": (24, 64, (7, 1), 1, 0, False, 262, 256),
    "last, 7x1": (64, 24, (7, 1), 1, 0, False, 262, 262),
    "discriminator 2": (64, 128, (4, 4), 2, 1, False, 128, 128),
    "discriminator 4": (256, 512, (4, 4), 1, 1, False, 32, 32),
}
NORMS = {"residual": (256, 64, 64, 1), "last up": (64, 256, 256, 3), "down": (128, 128, 128, 0)}  # channels, sides, pad
# Pixels, warps, WRITING: the variant's own, then others.
TILES = ((64, 4, 1024), (64, 4, 4096), (64, 8, 1024), (32, 4, 1024), (128, 8, 1024))


def convolutions(place: Place) -> Found:
    """Microseconds and FLOP/s of a step's convolutions in bf16 with the channels last, and whether they stay last."""
    found, last = place.row("convolutions", "convolutions", found={})["found"], torch.channels_last
    draw = functools.partial(torch.randn, device=place.device, dtype=torch.bfloat16)
    for n, label in itertools.product((2 * place.size.large, 2), CONVOLUTIONS):
        if (name := f"{label}, {n} pictures") in found:
            continue
        c, channels, kernel, stride, pad, transposed, *sides = CONVOLUTIONS[label]
        x = draw(n, c, *(side * place.size.pixels // 256 for side in sides)).contiguous(memory_format=last)
        weight = draw(*((c, channels) if transposed else (channels, c)), *kernel).contiguous(memory_format=last)
        given = x, weight, None, [stride] * 2, [pad] * 2, [1, 1], transposed, [int(transposed)] * 2, 1
        y = torch.ops.aten.convolution(*given)
        small = x if transposed else y  # each pixel of the smaller one meets the whole weight
        flops = 2 * small.shape[0] * small.shape[2] * small.shape[3] * weight.numel()
        backward = functools.partial(torch.ops.aten.convolution_backward, torch.randn_like(y), *given)
        ways = {
            "forward": functools.partial(torch.ops.aten.convolution, *given),
            "gradient of x": functools.partial(backward, [True, False, False]),
            "gradient of the weight": functools.partial(backward, [False, True, False]),
        }
        us = {way: microseconds(run, place.device) for way, run in ways.items()}
        rates = {way: flops / one * 1e6 for way, one in us.items()}
        found[name] = {"us": us, "flop_per_s": rates, "stays": y.is_contiguous(memory_format=last)}
        yield f"{name}: {found[name]}"


def tiles(place: Place) -> Found:
    """Microseconds and bytes/s of the norms of `nhwc` and their gradients, with its own tiles and with others.

    "batched" joins two batches in a pass, and leaves alone those of one.
    """
    found, large = place.row("tiles", "tiles", found={})["found"], place.size.large
    forward, backward = nhwc_norm.nhwc_norm, nhwc_norm.nhwc_norm_backward
    for tile, label, n in itertools.product(TILES, NORMS, (2 * large, large, 2, 1)):
        if tile != TILES[0] and label != "residual":
            continue
        nhwc_norm.PIXELS, nhwc_norm.WARPS, nhwc_norm.WRITING = tile
        c, *sides, pad = NORMS[label]
        h, w = (side * place.size.pixels // 256 for side in sides)
        x = torch.randn(n, h, w, c, device=place.device, dtype=torch.bfloat16)
        y, kept = forward(x, None, 1e-5, 0.0, pad)
        dy, inner = torch.randn_like(y), y[:, pad : pad + h, pad : pad + w]
        calls = {  # and the tensors like x that each moves at least, beside y
            "norm": (functools.partial(forward, x, None, 1e-5, 0.0, pad), 2),
            "norm with a skip": (functools.partial(forward, x, inner, 1e-5, 1.0, pad), 3),
            "gradient": (functools.partial(backward, x, kept, dy, None, 0.0, pad), 5),
            "gradient with a skip": (functools.partial(backward, x, kept, dy, x, 1.0, pad), 6),
        }
        for what, (run, moved) in calls.items():
            if (name := f"{label}, {n} pictures, {what}, tile {tile}") not in found:
                us = microseconds(run, place.device)
                found[name] = {"us": us, "bytes_per_s": (moved * x.nbytes + y.nbytes) / us * 1e6}
                yield f"{name}: {us:.1f} us"


def microseconds(run: Callable[[], object], device: torch.device) -> float:
    """What a call takes: on a GPU the median over replays of several in a graph, without their launches from Python."""
    if device.type == "cuda":
        from triton.testing import do_bench_cudagraph

        return 1e3 * do_bench_cudagraph(run, rep=5, return_mode="median")
    return 1e6 * alternate({"call": run}, rounds=1, warmup=0)["call"][0]
