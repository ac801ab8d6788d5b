"""What a survey measures: for each kind of item a function that gives the numbers of a row, and the result in words."""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from labkit.devices import instance_norm_is_wrong
from labkit.errors import LabkitError
from labkit.measure import equivalence
from labkit.measure.compare import compare
from labkit.measure.durations import operator_durations
from labkit.measure.energy import energy_counter, joules
from labkit.measure.plan import Item
from labkit.measure.record import record
from labkit.measure.results import as_json
from labkit.measure.roofline import copy_rate, matmul_rate
from labkit.measure.timing import alternate, flags, has_tf32
from labkit.variants.registry import SPEEDUPS

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
    if len({file.name for file in out.iterdir() if file.suffix != ".json"} - {path.name}) >= MAX_TRACES:
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
