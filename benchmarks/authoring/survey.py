"""Measure everything worth recording on this GPU, in the minutes there are; on a CPU, rehearse it.

    python -m benchmarks.authoring.survey --out out/survey      # again and again, until nothing is left to measure
    python -m benchmarks.authoring.evidence h200 out/survey     # into data/results and data/traces

results.json is written after every measurement. Its "rows" hold the measurements by their keys, each with its stamp;
"skipped" says why a measurement is missing; "stamp" is the latest call's. Measurements that have a row are not
repeated, so several calls complete a survey, and a failure costs its own row only.
"""

import argparse
import functools
import gc
import math
import re
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from benchmarks.authoring.apart import Apart, Result, end
from benchmarks.authoring.compiled import compile_ahead
from benchmarks.authoring.kernels import convolutions, right, sweep
from benchmarks.authoring.plan import BATCH_THAT_FILLS_GPU, RESNET, Item, gpu_plan, rehearsal_plan
from benchmarks.authoring.stacks import Found, in_turn, replays, step_of, updates
from labkit.devices import out_of_memory, pick_device
from labkit.errors import LabkitError
from labkit.measure import alternate, copy_rate, flags, matmul_rate, stamp
from labkit.measure.compare import compare
from labkit.measure.record import record
from labkit.measure.same import relative
from labkit.measure.states import take_step
from labkit.measure.tables import SURVEY_FORMAT, as_json, read_results, write_results
from labkit.measure.timing import has_tf32
from labkit.variants import nhwc_ends, nhwc_norm
from labkit.variants.registry import SPEEDUPS

RESULTS_FILE = "results.json"
NO_TIME = "no time left"
LIMIT = 3  # times its estimate, after which a process of its own is ended
MOST_DRIFT = 1e-6  # of a loss in a run in float64; a race shows only now and then
MOST_WAIT_S = 60.0  # for the compiler
INTERPRETED = 512  # pixels of a tile in a rehearsal: Triton's interpreter takes a while for each program


def survey(
    out: Path, minutes: float = 8.5, device: str = "auto", plan: list[Item] | None = None, only: str = ""
) -> Path:
    """Measures the items of a plan until the time is up, and rewrites results.json after every item.

    A failure is noted, and the next call tries that item again, after all items that were never tried. What an item
    had found until then stays under "unfinished".

    Args:
        out: the folder for results.json and the traces. Results in it are continued.
        minutes: no item is started that would need longer. An item may overrun its estimate a little.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: the items, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.
        only: how the keys of the items begin that are measured, with commas between: "right,in_turn".

    Returns:
        The path of results.json.

    Raises:
        LabkitError: `out` cannot be written to, its results are of another device, or the GPU failed for good.
    """
    deadline, where, file = time.monotonic() + 60 * minutes, pick_device(device), out / RESULTS_FILE
    here = stamp() | {"ran_on": where.type}
    results: dict = {"format": SURVEY_FORMAT, "stamp": here, "rows": {}, "skipped": {}}
    if file.exists():
        results = read_results(file)
        if [results["stamp"].get(name) for name in ("device", "ran_on")] != [here["device"], here["ran_on"]]:
            raise LabkitError(f"{file} is of another device than {here['device']}: use an empty folder.")
    results["stamp"] = here
    rows, skipped, unfinished = results["rows"], results["skipped"], results.setdefault("unfinished", {})
    todo = [item for item in plan or (gpu_plan() if where.type == "cuda" else rehearsal_plan()) if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill lists the missing items
    todo = [item for item in todo if item.key.startswith(tuple(only.split(",")))]
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # items that failed in an earlier call come last
    write_results(results, file)
    compiling, apart = compile_ahead(todo, where), Apart(measured_apart, interpret=where.type == "cpu")
    estimated = spent = 1.0  # seconds: how much longer than estimated items take here
    for item in todo:
        if deadline - time.monotonic() < item.estimate_s * spent / estimated:
            continue
        if item.kind not in ("device", "right"):  # the time of all others is to have no compiler's in it
            finish(compiling, deadline)
        skipped[item.key] = "did not finish"
        write_results(results, file)
        started = time.monotonic()
        limit, left = LIMIT * item.estimate_s * max(1.0, spent / estimated), deadline - started
        earlier, row, said = unfinished.get(item.key, []), None, ""
        run = functools.partial(apart, seconds=min(limit, left)) if item.kind in APART else measured
        for result in run(item, where, out):
            row, said = result
            if row is not None:
                unfinished[item.key] = [*earlier, row]  # of each try what it found
                write_results(results, file)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = NO_TIME if limit > left <= took else said, f"skipped, {said}"
        else:
            del skipped[item.key], unfinished[item.key]
            rows[item.key] = row | {"took_s": round(took, 1)}
            estimated, spent = estimated + item.estimate_s, spent + took
        write_results(results, file)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        gc.collect()  # a step and its optimisers refer to each other
        if where.type == "cuda":
            torch.cuda.synchronize()  # a GPU that has failed for good ends the survey here, with what it has
            torch.cuda.empty_cache()
    finish(compiling, time.monotonic())
    apart.close()
    return file


def finish(compiling: list[BaseProcess], deadline: float) -> None:
    """Waits for processes that compile. What they leave is compiled when it is first called."""
    until = min(deadline, time.monotonic() + MOST_WAIT_S)
    while compiling:
        process = compiling.pop()
        process.join(max(0.0, until - time.monotonic()))
        end(process)


def measured_apart(item: Item, device: torch.device, out: Path) -> Iterator[Result]:
    """`measured`, in a process of its own."""
    if device.type == "cpu":
        nhwc_norm.PIXELS = nhwc_ends.TILE = INTERPRETED
    return measured(item, device, out)


def measured(item: Item, device: torch.device, out: Path) -> Iterator[Result]:
    """An item's row and its result in words, as far as they are known; if it fails, last None and the reason."""
    try:
        with warnings.catch_warnings(), item.flags():
            # a speed-up that warns that it does nothing here is not timed as 1.00x
            warnings.filterwarnings("error", rf"({'|'.join(SPEEDUPS)}): ", UserWarning)
            about, found = asdict(item) | {"stamp": stamp()}, MEASURES[item.kind](item, device, out)
            for row, said in [found] if isinstance(found, tuple) else found:
                yield about | row, said
    except Exception as error:
        if words := out_of_memory(error):
            yield None, f"out of memory: {words}"
        elif isinstance(error, UserWarning):
            yield None, f"does not suit this device: {error}"
        elif isinstance(error, LabkitError):
            yield None, str(error)
        else:
            traceback.print_exception(error)
            yield None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def compared(items: dict[str, Item], device: torch.device) -> tuple[dict, str]:
    """`labkit.compare` of the items, all against the first one: the row, and the result of the last one in words.

    Raises:
        LabkitError: the last one does not suit the device, or does not run on it.
    """
    item = list(items.values())[-1]
    makers = {name: functools.partial(one.step, device) for name, one in items.items()}
    table = compare(makers, item.batch(device), item.steps, limit_s=0)
    verdict, why, seconds = table.iloc[-1][["verdict", "why", "median_s"]]
    if math.isnan(seconds):
        raise LabkitError(f"{verdict}: {why}")
    return {"comparison": as_json(table)}, f"{1e3 * seconds:.1f} ms, {verdict}, {why}"


def check_correctness(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A comparison over many rounds; of an exact stack also a long run in float64, whose losses stay the baseline's.

    Training magnifies every difference, so that after 200 steps rounding alone would leave nothing to compare. So after
    every 50 batches the baseline goes on from the step's state. The step itself is never interrupted.
    """
    base = replace(item, speedups=())
    row, said = compared({"baseline": base, item.stack: item}, device)
    seen = {}
    if all(SPEEDUPS[name].tolerance == "exact" for name in item.speedups):
        lr = 2**-12  # a graph holds it in float32, where it is the same number
        step, baseline = (one.step(device, torch.float64, lr) for one in (item, base))
        apart = []
        for number in range(item.steps):
            if number and number % 50 == 0:
                baseline.load_state_dict(step.state_dict())
            batch = item.batch(device, torch.float64, number)
            mine, right = take_step(step, batch, item.stack), take_step(baseline, batch, "baseline")
            apart += [relative(mine[name].item(), loss.item()) for name, loss in right.items()]
        seen["run losses"] = max(apart, key=lambda one: math.inf if math.isnan(one) else one)
    ok = "not equivalent" not in said and all(one <= MOST_DRIFT for one in seen.values())
    return row | {"ok": ok, "seen": seen}, f"{'ok' if ok else 'NOT OK'}: {seen}, {said}"


def measure_device(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The device's limits: FLOP/s of matrix products by type, bytes/s of copies."""
    rates = {"float32": matmul_rate(device)}
    if has_tf32(device):
        with flags("on"):
            rates["tf32"] = matmul_rate(device)
    if device.type == "cuda":  # a CPU may take half a minute for this in float16
        rates |= {name: matmul_rate(device, getattr(torch, name)) for name in ("bfloat16", "float16")}
    row = {"matmul_flop_per_s": rates, "copy_bytes_per_s": copy_rate(device)}
    return row, str(row)


def time_against_baseline(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The item against eager PyTorch at its default flags; without speed-ups, that alone."""
    if item.tf32 != "default" and not has_tf32(device):
        raise LabkitError("does not suit this device: it computes nothing in TF32")
    name = item.stack if item.tf32 == "default" else f"tf32={item.tf32}"
    return compared({"baseline": replace(item, speedups=(), tf32="default"), name: item}, device)


def race_against_cyclegan(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Another model, or CycleGAN with another generator, against CycleGAN with ResNet-9, all else being equal."""
    settings = item.settings | RESNET if item.model == "CycleGAN" else RESNET
    return compared({"CycleGAN": replace(item, model="CycleGAN", settings=settings), item.called: item}, device)


def time_streams(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """One stream and two, in turn."""
    batch = item.batch(device)
    steps = {"one": step_of(item, (), device), "two": step_of(item, ("streams",), device)}
    seconds = alternate({name: functools.partial(step, *batch) for name, step in steps.items()}, item.steps)
    medians = ", ".join(f"{name} {1e3 * statistics.median(each):.1f} ms" for name, each in seconds.items())
    return {"seconds": seconds}, medians


def record_trace(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, and a step's time after it, in the same process, which the profiler has slowed."""
    path = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", item.key) + ".json.gz")
    batch, step = item.batch(device), item.step(device)
    # Shapes cost time on the host, which changes nothing where the GPU is behind.
    size = record(step, batch, path, item.steps, shapes=item.batch_size >= BATCH_THAT_FILLS_GPU).stat().st_size
    seconds = statistics.median(alternate({"step": lambda: step(*batch)}, rounds=6)["step"])
    row = {"file": path.name, "seconds_per_step": seconds}
    return row, f"{size / 1e6:.1f} MB, {1e3 * seconds:.1f} ms a step without profiler"


# Functions that return a row and what it says in words, or generate both again and again as they learn more.
MEASURES: dict[str, Callable[[Item, torch.device, Path], tuple[dict, str] | Found]] = {
    "right": right,
    "in_turn": in_turn,
    "replay": replays,
    "updates": updates,
    "sweep": sweep,
    "convolutions": convolutions,
    "correctness": check_correctness,
    "device": measure_device,
    "timing": time_against_baseline,
    "race": race_against_cyclegan,
    "streams": time_streams,
    "trace": record_trace,
}
# Measured in a process of their own. They may crash, hang, or leave behind what disturbs others: the profiler slows
# down all later steps, and PyTorch keeps the algorithm that cuDNN first chose for a shape, whatever the flag is later.
APART = {*MEASURES} - {"device", "timing", "race"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder; results in it are continued")
    parser.add_argument("--minutes", type=float, default=8.5, help="no measurement is started that would end later")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--only", default="", help="how the keys begin of what is measured, with commas between")
    print(survey(**vars(parser.parse_args())))
