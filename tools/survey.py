"""Measure everything worth recording on this GPU, in the minutes there are; on a CPU, rehearse it.

    python -m tools.survey --out out/survey                # again and again, until nothing is left to measure
    python -m tools.evidence h200 out/survey              # into data/results and data/traces

results.json is written after every measurement. Its "rows" hold the measurements by their keys, each with its stamp;
"skipped" says why a measurement is missing; "stamp" is the latest call's. Measurements that have a row are not
repeated, so several calls complete a survey, and a failure costs its own row only.
"""

import argparse
import gc
import statistics
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from labkit.devices import out_of_memory, pick_device
from labkit.errors import LabkitError
from labkit.measure import flags, run_in_subprocess, stamp
from labkit.measure.results import SURVEY_FORMAT, read, write
from labkit.networks.light import LIGHT
from labkit.variants.registry import SPEEDUPS
from tools.survey_items import MEASURES, RESNET, Item, Stack

FILE = "results.json"
NO_TIME = "no time left"

SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
UNET = {"generator": "unet_256"}
FEWER_BLOCKS = ("resnet_6blocks", "resnet_3blocks")
FEWER_LAUNCHES = ("batched", "fused_adam", "out_of_place")
# Stacks worth measuring: speed-ups that save launches on one another, with those that make kernels shorter.
STACKS: list[Stack] = [
    (*graph, *FEWER_LAUNCHES, *shorter)
    for graph in ((), ("graph",))
    for shorter in ((), ("bf16",), ("bf16", "channels_last"))
]
STACKS += [("graph", "streams"), ("streams", "bf16"), ("streams", "fp16")]
# Compiling takes a minute before each of these is measured.
COMPILED: list[Stack] = [("compile", "bf16"), ("graph", "compile", "batched", "bf16"), ("compile",)]
MEMORY: list[Stack] = [("recompute",), ("accumulate",), ("recompute", "bf16")]
BEST: Stack = ("graph", *FEWER_LAUNCHES, "bf16")
TIMING = {1: (7, 15), 4: (8, 12), 16: (13, 9)}  # by batch size: seconds on an H200, and rounds


def gpu_plan() -> list[Item]:
    """A survey of a GPU, for a few calls of eight minutes each, the most important items first.

    First the correctness of every speed-up on this GPU, and ResNet-9 at batch 1 and 16, each speed-up alone and the
    stacks, with traces and the operators' durations for replay. Then U-Net-256, the cycles alone, one generator instead
    of two, energy, and the light generators; last memory, TF32, batch 4, and what else compiles. Among the traces are
    those that notebooks 03 to 06 ask `labkit.gpu_trace` for.
    """
    left_out = (*COMPILED, *MEMORY)  # for later
    alone: list[Stack] = [(name,) for name in SPEEDUPS if (name,) not in left_out]
    others = [stack for stack in alone if stack != ("graph",)]
    small: dict[str, Any] = dict(settings=SMALL, size=128, tf32="off", steps=50)  # a race shows only now and then
    trace: dict[str, Any] = dict(settings=RESNET, steps=8)
    in_forward: list[Stack] = [(), ("streams",), ("batched",), ("bf16",), ("streams", "bf16")]  # others act elsewhere
    both = [1, 16]
    return [
        *each("correctness", 12, [2], [("graph",)], **small | {"steps": 200}),  # the longer, the more replays
        *each("correctness", 6, [1], [("channels_last",)], **small),  # some devices go wrong with one picture
        *each("correctness", 6, [2], [*others, BEST, ("streams", "bf16"), ("graph", "streams")], **small),
        Item("device", 10),
        *timings(RESNET, both, [()]),
        *timings(RESNET, [1], [*STACKS, *alone]),
        *timings(RESNET, [16], STACKS),
        *each("trace", 15, both, [(), ("streams",), BEST], **trace),
        *each("trace", 15, [1], [("graph", *FEWER_LAUNCHES)], **trace),
        *each("durations", 20, both, [(), ("bf16",)], settings=RESNET),
        *timings(RESNET, both, [("compile", "bf16")], estimate_s=90),
        *timings(RESNET, both, in_forward, scope="forward"),
        *timings(UNET, both, [(), ("streams",), ("bf16",), BEST]),
        *timings(UNET, both, in_forward, scope="forward"),
        *timings({}, both, [(), BEST], kind="race", model="DeviationGAN"),
        *timings({"consistency": "deviation_both"}, both, [(), BEST], kind="race", model="DeviationGAN"),
        *each("energy", 12, both, [("streams",), ("bf16",), BEST], settings=RESNET),
        *each("trace", 15, [16], [("bf16",)], **trace),
        *each("trace", 15, [1], [("bf16",), FEWER_LAUNCHES, ("compile",)], **trace),
        *each("trace", 15, [16], [(), ("streams",), BEST], **trace | {"settings": UNET}),
        *(one for name in (*FEWER_BLOCKS, *LIGHT) for one in timings({"generator": name}, both, [()], kind="race")),
        *timings(RESNET, [16], alone),
        *timings(RESNET, both, COMPILED[1:], estimate_s=90),
        *each("correctness", 60, [2], COMPILED, **small),
        *timings(RESNET, [16], MEMORY),
        *(one for tf32 in ("on", "off") for net in (RESNET, UNET) for one in timings(net, both, [()], tf32=tf32)),
        *timings(RESNET, [4], [(), *STACKS]),
    ]


def each(
    kind: str, estimate_s: float, batch_sizes: Iterable[int], stacks: Iterable[Stack], **fields: Any
) -> list[Item]:
    """An item for each batch size and each stack, of those that are possible: no speed-up in it excludes another."""
    return [
        Item(kind, estimate_s, batch_size=batch_size, speedups=stack, **fields)
        for batch_size in batch_sizes
        for stack in stacks
        if SPEEDUPS.keys() >= set(stack) and all(SPEEDUPS[name].excludes.keys().isdisjoint(stack) for name in stack)
    ]


def timings(
    settings: dict, batch_sizes: Iterable[int], stacks: Iterable[Stack], estimate_s: float = 0, **fields: Any
) -> list[Item]:
    """Each stack against the baseline, or as a race; `estimate_s` replaces the usual estimate."""
    items = []
    for batch_size in batch_sizes:
        seconds, rounds = TIMING[batch_size]
        usual = {"kind": "timing", "settings": settings, "steps": rounds}
        items += each(estimate_s=estimate_s or seconds, batch_sizes=[batch_size], stacks=stacks, **usual | fields)
    return items


def rehearsal_plan() -> list[Item]:
    """Items of every kind, small enough for a CPU, which leaves out the streams, TF32 and energy."""
    return [
        Item("correctness", 1, TINY, 64, tf32="off", speedups=("batched",), steps=6),
        Item("correctness", 1, TINY, 64, tf32="off", speedups=("streams",), steps=6),
        Item("device", 2),
        Item("timing", 1, TINY, 32, steps=6),
        Item("timing", 1, TINY, 32, tf32="off", steps=6),
        Item("timing", 1, TINY, 32, speedups=("bf16",), steps=6),
        Item("timing", 1, TINY, 32, scope="forward", speedups=("bf16",), steps=6),
        Item("race", 1, TINY, 32, steps=6),
        Item("energy", 1, TINY, 32, speedups=("bf16",)),
        Item("trace", 2, TINY, 32, steps=2),
        Item("durations", 2, TINY, 32),
    ]


def survey(
    out: Path, minutes: float = 8.5, earlier: Path | None = None, device: str = "auto", plan: list[Item] | None = None
) -> Path:
    """Measures the items of a plan until the time is up, and rewrites results.json after every item.

    A failure is noted, and the next call tries that item again, after all items that were never tried.

    Args:
        out: the folder for results.json and at most seven traces. Results in it are continued.
        minutes: no item is started that would need longer. An item may overrun its estimate a little.
        earlier: results of an earlier call in another folder, to continue. That file is not changed.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: the items, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.

    Returns:
        The path of results.json.

    Raises:
        LabkitError: `out` cannot be written to, `earlier` is of another device, or the GPU failed for good.
    """
    deadline, where, file = time.monotonic() + 60 * minutes, pick_device(device), out / FILE
    here = stamp() | {"ran_on": where.type}
    results: dict = {"format": SURVEY_FORMAT, "stamp": here, "rows": {}, "skipped": {}}
    if file.exists() or earlier:
        results = read(file if file.exists() else Path(earlier or file))
        if [results["stamp"].get(name) for name in ("device", "ran_on")] != [here["device"], here["ran_on"]]:
            raise LabkitError(f"the earlier results are of another device than {here['device']}: use an empty folder.")
    results["stamp"] = here
    rows, skipped = results["rows"], results["skipped"]
    todo = [item for item in plan or (gpu_plan() if where.type == "cuda" else rehearsal_plan()) if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill lists the missing items
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # items that failed in an earlier call come last
    write(results, file)
    tempo: dict[str, list[float]] = {}  # by kind, how many times longer than estimated its items took
    for item in todo:
        if deadline - time.monotonic() < item.estimate_s * statistics.median(tempo.get(item.kind, [1.0])):
            continue
        skipped[item.key] = "did not finish"
        write(results, file)
        started = time.monotonic()
        row, said = measured_apart(item, where, out) if item.kind == "trace" else measured(item, where, out)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = said, f"skipped, {said}"
        else:
            del skipped[item.key]
            rows[item.key] = row | {"took_s": round(took, 1)}
            tempo.setdefault(item.kind, []).append(took / item.estimate_s)
        write(results, file)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        gc.collect()  # a step and its optimisers refer to each other
        if where.type == "cuda":
            torch.cuda.synchronize()  # a GPU that has failed for good ends the survey here, with what it has
            torch.cuda.empty_cache()
    return file


def measured(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """An item's row and its result in words; or None, and the reason why there is no row."""
    try:
        with warnings.catch_warnings(), flags(item.tf32):
            for name in item.speedups:  # a speed-up that warns that it does nothing here is not timed as 1.00x
                warnings.filterwarnings("error", rf"{name}: ", UserWarning)
            row, said = MEASURES[item.kind](item, device, out)
            return asdict(item) | {"stamp": stamp()} | row, said
    except Exception as error:
        if words := out_of_memory(error):
            return None, f"out of memory: {words}"
        if isinstance(error, UserWarning):
            return None, f"does not suit this device: {error}"
        if isinstance(error, LabkitError):
            return None, str(error)
        traceback.print_exception(error)
        return None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def measured_apart(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """`measured`, in a new process: otherwise the profiler would disturb all later traces and timings."""
    try:
        return run_in_subprocess(measured, item, device, out)
    except LabkitError as error:
        return None, str(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder; results in it are continued")
    parser.add_argument("--minutes", type=float, default=8.5, help="no measurement is started that would end later")
    parser.add_argument("--earlier", type=Path, help="results.json of an earlier call, to continue")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    print(survey(**vars(parser.parse_args())))
