"""How each kind of survey item is measured: a function gives the numbers of its row, and the result in words."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure import equivalence
from labkit.measure.compare import as_json, compare
from labkit.measure.durations import operator_durations
from labkit.measure.plan import Item
from labkit.measure.record import record
from labkit.measure.roofline import copy_rate, matmul_rate
from labkit.measure.timing import alternate, flags
from labkit.variants.registry import SPEEDUPS

FILE = "results.json"
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
        return {"losses": worst.losses, "gradients": worst.gradients, "1 - cosine": 1 - worst.cosine}

    seen = {"float32": first_steps(torch.float32, item.steps)}
    if {SPEEDUPS[name].tolerance for name in item.speedups} == {"exact"}:
        seen["float64"] = first_steps(torch.float64, 1)
        seen["run"] = {"losses": run_drift(item, device, item.steps)}
        limits = {"float32": {"losses": 1e-5, "gradients": 1e-1}, "float64": {"losses": 1e-10, "gradients": 1e-10}}
        limits["run"] = {"losses": 1e-6}
    else:
        limits = {"float32": {"losses": 1e-2, "1 - cosine": 0.1}}
        if "graph" in item.speedups:
            seen["run"], limits["run"] = {"losses": run_drift(item, device, 6, torch.float32)}, {"losses": 5e-2}
    ok = all(seen[run][name] <= limit for run in limits for name, limit in limits[run].items())
    numbers = ", ".join(f"{run} {name} {value:.1e}" for run in seen for name, value in seen[run].items())
    return {"ok": ok, "seen": seen}, f"{'ok' if ok else 'NOT OK'}: {numbers}"


def run_drift(item: Item, device: torch.device, steps: int, dtype: torch.dtype = torch.float64) -> float:
    """`equivalence.drift` over a run of `steps` batches."""
    lr = 2**-12  # a graph holds it in float32, where it is the same number
    step, baseline = (one.step(device, dtype=dtype, lr=lr) for one in (item, item.baseline()))
    return equivalence.drift(step, baseline, (item.batch(device, dtype, seed) for seed in range(steps)))


def measure_device(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The device's limits: FLOP/s of matrix products by type, bytes/s of copies."""
    rates = {"float32": matmul_rate(device)}
    if has_tf32(device):
        with flags("on"):
            rates["tf32"] = matmul_rate(device)
    if device.type == "cuda":  # a CPU may take half a minute for this in float16
        rates |= {name: matmul_rate(device, getattr(torch, name)) for name in ("bfloat16", "float16")}
    copied = copy_rate(device)
    said = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates.items())
    return {"matmul_flop_per_s": rates, "copy_bytes_per_s": copied}, f"{said}, copies {copied / 1e9:.3g} GB/s"


def time_against_baseline(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """`labkit.compare` of the item with eager PyTorch at its default flags; without speed-ups, of that alone.

    Raises:
        LabkitError: the item does not suit the device, or does not run on it.
    """
    if item.tf32 != "default" and not has_tf32(device):
        raise LabkitError("does not suit this device: it computes nothing in TF32")
    name = item.stack if item.tf32 == "default" else f"tf32={item.tf32}"
    items = {"baseline": item.baseline(), name: item}
    makers = {name: (lambda one=one: one.step(device, with_flags(one.tf32))) for name, one in items.items()}
    table = compare(makers, item.batch(device), item.steps)
    verdict, why = table.loc[name, ["verdict", "why"]]
    if math.isnan(table.loc[name, "median_s"]):
        raise LabkitError(f"{verdict}: {why}")
    return {"comparison": as_json(table)}, f"{1e3 * table.loc[name, 'median_s']:.1f} ms, {verdict}, {why}"


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
        size = record(step, batch, path, steps).stat().st_size
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
    "trace": record_trace,
    "durations": measure_durations,
}


def with_flags(tf32: str) -> type:
    """A class for `make_step`: each call of the step runs under these flags."""

    class WithFlags:
        def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
            with flags(tf32):
                return super().__call__(real_a, real_b)  # type: ignore[misc]  # stacked on a step

    return WithFlags


def has_tf32(device: torch.device) -> bool:
    """Whether TF32 changes anything here: GPUs of compute capability 8.0 (Ampere) and later compute in it."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
