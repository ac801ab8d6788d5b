"""All the measurements of a plan, in the minutes there are: a runner that loses nothing, and continues.

`survey` runs the plan. Below it, a function for each kind of item gives the numbers of a row, and the result in words.
"""

from __future__ import annotations

import functools
import gc
import math
import re
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from labkit.devices import instance_norm_is_wrong, pick_device
from labkit.errors import LabkitError
from labkit.measure import equivalence
from labkit.measure.compare import compare
from labkit.measure.durations import operator_durations
from labkit.measure.energy import energy_counter, joules
from labkit.measure.plan import Item, gpu_plan, rehearsal_plan
from labkit.measure.record import record, run_in_subprocess
from labkit.measure.results import SURVEY_FORMAT, as_json, read, write
from labkit.measure.roofline import copy_rate, matmul_rate
from labkit.measure.timing import alternate, flags, has_tf32
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS

FILE = "results.json"
NO_TIME = "no time left"
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|ALLOC_FAILED")
# The largest distances from the baseline that count as the same; see `check_correctness`.
EXACT = {
    "float32 losses": 1e-5,
    "float32 gradients": 1e-1,
    "float64 losses": 1e-10,
    "float64 gradients": 1e-10,
    "run losses": 1e-6,
}
ROUNDED = {"float32 losses": 1e-2, "float32 1 - cosine": 0.1, "run losses": 5e-2}
MOST_FIRST_STEPS = 50  # of an item with more steps the others only make its run longer
GPU_BUSY = 16  # pictures in a batch, from which on we expect the GPU to be behind, as in the simulation of an A100
ENERGY_ROUNDS = 3
MAX_TRACES, MAX_BYTES = 7, 9_000_000  # with the results eight files, which together stay below 64 MiB


def survey(
    out: Path | str,
    minutes: float = 8.5,
    earlier: Path | str | None = None,
    device: str = "auto",
    plan: list[Item] | None = None,
) -> Path:
    """Measures the items of a plan until the time is up, and rewrites results.json after every item.

    Items that have a row in the results are not measured again, so several calls complete a plan. A failure costs its
    own item only, and is noted; the next call tries that item again, after all items that were never tried.

    Args:
        out: the folder for results.json and at most seven traces. Results in it are continued.
        minutes: no item is started that would need longer. An item may overrun its estimate a little.
        earlier: results of an earlier call in another folder, to continue. That file is not changed.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: the items, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.

    Returns:
        The path of results.json. In it "rows" has the measurements by the items' keys, each with its own stamp;
        "skipped" says why an item has none; "stamp" is the latest call's.

    Raises:
        LabkitError: an argument cannot be used, `out` cannot be written to, or the GPU failed for good.
    """
    if not minutes > 0:
        raise LabkitError(f"minutes={minutes}: give a positive number of minutes to measure in.")
    deadline = time.monotonic() + 60 * minutes
    where = pick_device(device)
    on_gpu = where.type == "cuda"
    file = Path(out) / FILE
    if plan is None:
        plan = gpu_plan() if on_gpu else rehearsal_plan()
    with (
        torch.cuda.device(where if on_gpu else -1),  # time and memory are measured on the current GPU
        torch.random.fork_rng([where] if on_gpu else []),  # measuring sets seeds
        flags("default"),
    ):
        results = _continued(file, earlier, stamp() | {"ran_on": where.type})
        _work_through(plan, results, file, where, deadline)
    return file


def _continued(file: Path, earlier: Path | str | None, here: dict) -> dict:
    """Results to add to, written to `file`: the results in it, the `earlier` results, or new ones."""
    source = file if earlier is None else Path(earlier)
    if file.exists() and file.resolve() != source.resolve():
        raise LabkitError(
            f"{file.parent} holds results of its own, which the results in {source} would overwrite. Omit the earlier "
            "file to continue the results in the folder, or choose an empty folder."
        )
    results: dict = {"format": SURVEY_FORMAT, "stamp": here, "rows": {}, "skipped": {}}
    if earlier is not None or file.exists():
        results = read(source)
        theirs, ours = (f"{one.get('device')} ({one.get('ran_on')})" for one in (results["stamp"], here))
        if theirs != ours:
            raise LabkitError(
                f"{source}: measured on {theirs}, but this is {ours}. Each device needs results of its own: choose an "
                "empty folder, and no earlier file."
            )
    results["stamp"] = here
    write(results, file)
    return results


def _work_through(plan: list[Item], results: dict, file: Path, device: torch.device, deadline: float) -> None:
    """Measures the items of a plan that have no row yet, as long as the time suffices."""
    rows, skipped = results["rows"], results["skipped"]
    todo = [item for item in plan if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill lists the missing items
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # items that failed in an earlier call come last
    tempo: dict[str, list[float]] = {}  # by kind, how many times longer than estimated its items took
    for item in todo:
        if deadline - time.monotonic() < item.estimate_s * statistics.median(tempo.get(item.kind, [1.0])):
            print(f"{item.key}: skipped, {skipped[item.key]}", flush=True)
            continue
        skipped[item.key] = "did not finish"
        write(results, file)
        started = time.monotonic()
        row, said = (_recorded_in_subprocess if item.kind == "trace" else measured)(item, device, file.parent)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = said, f"skipped, {said}"
        else:
            del skipped[item.key]
            rows[item.key] = row | {"took_s": round(took, 1)}
            tempo.setdefault(item.kind, []).append(took / item.estimate_s)
        write(results, file)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        free(device, item)
    write(results, file)


def measured(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """An item's row and its result in words; or None, and the reason why there is no row."""
    try:
        with warnings.catch_warnings(), flags(item.tf32):
            for name in item.speedups:  # a speed-up that warns that it does nothing here is not timed as 1.00x
                warnings.filterwarnings("error", rf"{name}: ", UserWarning)
            row, said = MEASURES[item.kind](item, device, out)
            return asdict(item) | {"stamp": stamp()} | row, said
    except Exception as error:
        if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
            return None, "out of memory"
        if isinstance(error, UserWarning):
            return None, f"does not suit this device: {error}"
        if isinstance(error, LabkitError):
            return None, str(error)
        traceback.print_exception(error)
        return None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _recorded_in_subprocess(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """`measured`, in a new process: otherwise the profiler would disturb all later traces and timings."""
    try:
        return run_in_subprocess(measured, item, device, out)
    except LabkitError as error:
        return None, str(error)


def free(device: torch.device, item: Item) -> None:
    """Frees the memory that `item` left. Raises `LabkitError` if it left the GPU in a state beyond recovery."""
    gc.collect()  # a step and its optimisers refer to each other
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            raise LabkitError(
                f"the GPU no longer answers after {item.key} ({error}). The results so far are written: "
                "run the same command again to continue."
            ) from error


def check_correctness(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Compares first steps with the baseline's, over several batches: a race shows only now and then.

    Exact speed-ups keep losses and gradients within 1e-10 in float64 (one batch only), and the losses of a whole run in
    float64 within 1e-6, since rounding grows from step to step. In float32 they keep losses within 1e-5, but gradients
    only within 1e-1: where a picture and its reconstruction are nearly equal, rounding turns the sign that the pixel
    has in the gradient of the L1 loss. 16-bit speed-ups keep losses within 1e-2 and gradients at a cosine of at least
    0.9; with a graph, which only replays from the third step on, also the losses of six steps within 5e-2.
    """

    def first_steps(dtype: torch.dtype, batches: int) -> dict[str, float]:
        step, baseline = (one.step(device, dtype=dtype) for one in (item, item.baseline()))
        worst = equivalence.worst_distance(step, baseline, (item.batch(device, dtype, seed) for seed in range(batches)))
        numbers = {"losses": worst.losses, "gradients": worst.gradients, "1 - cosine": 1 - worst.cosine}
        return {f"{str(dtype).removeprefix('torch.')} {name}": value for name, value in numbers.items()}

    exact = all(SPEEDUPS[name].tolerance == "exact" for name in item.speedups)
    seen = first_steps(torch.float32, min(item.steps, MOST_FIRST_STEPS))
    if exact:
        seen |= first_steps(torch.float64, 1) | {"run losses": run_drift(item, device, item.steps)}
    elif "graph" in item.speedups:
        seen["run losses"] = run_drift(item, device, 6, torch.float32)
    limits = EXACT if exact else ROUNDED
    ok = all(seen[name] <= limits[name] for name in seen if name in limits)
    numbers = ", ".join(f"{name} {value:.1e}" for name, value in seen.items())
    return {"ok": ok, "seen": seen}, f"{'ok' if ok else 'NOT OK'}: {numbers}"


def run_drift(item: Item, device: torch.device, steps: int, dtype: torch.dtype = torch.float64) -> float:
    """`equivalence.drift` over a run of `steps` batches."""
    lr = 2**-12  # a graph holds it in float32, where it is the same number
    step, baseline = (one.step(device, dtype=dtype, lr=lr) for one in (item, item.baseline()))
    return equivalence.drift(step, baseline, (item.batch(device, dtype, seed) for seed in range(steps)))


def measure_device(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The device's limits: FLOP/s of matrix products by type, bytes/s of copies. And a known bug: see channels_last."""
    rates = {"float32": matmul_rate(device)}
    if has_tf32(device):
        with flags("on"):
            rates["tf32"] = matmul_rate(device)
    if device.type == "cuda":  # a CPU may take half a minute for this in float16
        rates |= {name: matmul_rate(device, getattr(torch, name)) for name in ("bfloat16", "float16")}
    copied, wrong = copy_rate(device), instance_norm_is_wrong(device)
    said = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates.items())
    row = {"matmul_flop_per_s": rates, "copy_bytes_per_s": copied, "instance_norm_is_wrong": wrong}
    gradient = f"instance norm's gradient in channels_last is {'wrong' if wrong else 'right'}"
    return row, f"{said}, copies {copied / 1e9:.3g} GB/s, {gradient}"


def time_against_baseline(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """`labkit.compare` of the item with eager PyTorch at its default flags; without speed-ups, of that alone.

    Raises:
        LabkitError: the item does not suit the device, or does not run on it.
    """
    if item.tf32 != "default" and not has_tf32(device):
        raise LabkitError("does not suit this device: it computes nothing in TF32")
    name = item.stack if item.tf32 == "default" else f"tf32={item.tf32}"
    return _compared({"baseline": item.baseline(), name: item}, device)


def race_against_cyclegan(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """`labkit.compare` of another model with CycleGAN, both with the same speed-ups.

    Raises:
        LabkitError: the item does not suit the device, or does not run on it.
    """
    return _compared({"CycleGAN": item.rival(), item.called: item}, device)


def _compared(items: dict[str, Item], device: torch.device) -> tuple[dict, str]:
    """The comparison of the last item with the first one."""
    name, item = list(items.items())[-1]
    makers = {name: (lambda one=one: one.step(device)) for name, one in items.items()}
    table = compare(makers, item.batch(device), item.steps)
    verdict, why = table.loc[name, ["verdict", "why"]]
    if math.isnan(table.loc[name, "median_s"]):
        raise LabkitError(f"{verdict}: {why}")
    return {"comparison": as_json(table)}, f"{1e3 * table.loc[name, 'median_s']:.1f} ms, {verdict}, {why}"


def measure_energy(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Joules a step of the item and of its baseline, measured in turn.

    Raises:
        LabkitError: the device does not count the energy it uses.
    """
    counter, batch = energy_counter(device), item.batch(device)
    steps = {"baseline": item.baseline().step(device), item.stack: item.step(device)}
    runs = {name: functools.partial(step, *batch) for name, step in steps.items()}
    alternate(runs, rounds=1)  # libraries choose their kernels, a graph is recorded
    used: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ENERGY_ROUNDS):
        for name, run in runs.items():
            used[name].append(joules(run, counter))
    before, after = map(statistics.median, used.values())
    return {"joules_per_step": used}, f"{after:.3g} J a step, the baseline {before:.3g} J"


def record_trace(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, of fewer steps than asked for if its file would be too large; and the time of a step without profiler.

    Raises:
        LabkitError: the folder is full, or a single step makes too large a file.
    """
    path = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", item.key) + ".json.gz")
    if len({file.name for file in out.iterdir()} - {path.name, FILE}) >= MAX_TRACES:
        raise LabkitError(f"{out} holds {MAX_TRACES} files: use another folder, with these results as the earlier")
    batch = item.batch(device)
    step = item.step(device)
    steps = item.steps
    while steps:
        # Shapes cost time on the host, which changes nothing where the GPU is behind.
        size = record(step, batch, path, steps, shapes=item.batch_size >= GPU_BUSY).stat().st_size
        if size <= MAX_BYTES:
            seconds = statistics.median(alternate({"step": lambda: step(*batch)}, rounds=6)["step"])
            row = {"file": path.name, "bytes": size, "recorded_steps": steps, "seconds_per_step": seconds}
            return row, f"{steps} steps, {size / 1e6:.1f} MB, {1e3 * seconds:.1f} ms a step without profiler"
        path.unlink()
        steps = int(steps * 0.9 * MAX_BYTES / size)
    raise LabkitError(f"{path.name}: even one step takes more than {MAX_BYTES / 1e6:g} MB")


def measure_durations(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Microseconds of each operator of a step, by signature, for `labkit.simulate`."""
    found = operator_durations(item.step(device), item.batch(device))
    return {"microseconds": found}, f"{len(found)} signatures, {sum(found.values()) / 1e3:.1f} ms together"


MEASURES: dict[str, Callable[[Item, torch.device, Path], tuple[dict, str]]] = {
    "correctness": check_correctness,
    "device": measure_device,
    "timing": time_against_baseline,
    "race": race_against_cyclegan,
    "energy": measure_energy,
    "trace": record_trace,
    "durations": measure_durations,
}
