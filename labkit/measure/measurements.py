"""The five kinds of measurement of a survey: each gives a row's numbers, and what to say of them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure.durations import operator_durations
from labkit.measure.plan import Item
from labkit.measure.record import Batch, as_found, record
from labkit.measure.results import FILE
from labkit.measure.roofline import copy_rate, matmul_rate
from labkit.measure.timing import PeakMemory, alternate, ratio, spread
from labkit.networks.counting import flop_counter
from labkit.variants.registry import SPEEDUPS

MAX_TRACES, MAX_BYTES = 7, 9_000_000  # with the results eight files, which together stay below 64 MiB
LEAST_ROUNDS, MOST_ROUNDS = 6, 30  # fewer give no interval of 95%


@contextmanager
def flags(tf32: str) -> Iterator[dict[str, bool]]:
    """TF32 "on", "off" or as PyTorch has it by "default", and cuDNN's benchmark on, as in the public reference.

    Gives the flags in force, under the names they have in `labkit.stamp`.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    found = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = now = True, tf32 != "off", tf32 == "on"
    try:
        yield dict(zip(("cudnn_benchmark", "tf32_conv", "tf32_matmul"), now, strict=True))
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = found


def check_correctness(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """First steps against the baseline's, each from the same weights on another batch: a race shows now and then.

    Exact speed-ups keep losses and gradients within 1e-10 in float64 (one batch only), and the losses of a whole run in
    float64 within 1e-6, since rounding grows from step to step. In float32 they keep losses within 1e-5, but gradients
    only within 1e-1: where a picture and its reconstruction are nearly equal, rounding turns the sign that the pixel
    has in the gradient of the L1 loss. 16-bit ones keep losses within 1e-2 and gradients at a cosine of at least 0.9;
    with a graph, which only replays from the third step on, the losses of six steps within 5e-2.
    """
    tolerances = {SPEEDUPS[name].tolerance for name in item.speedups}
    seen = {"float32": deviation(item, device, torch.float32, item.steps)}
    if tolerances == {"exact"}:
        seen["float64"] = deviation(item, device, torch.float64, batches=1)
        seen["run"] = {"losses": drift(item, device, item.steps)}
        limits = {"float32": {"losses": 1e-5, "gradients": 1e-1}, "float64": {"losses": 1e-10, "gradients": 1e-10}}
        limits["run"] = {"losses": 1e-6}
    else:
        limits = {"float32": {"losses": 1e-2, "1 - cosine": 0.1}}
        if "graph" in item.speedups:
            seen["run"], limits["run"] = {"losses": drift(item, device, 6, torch.float32)}, {"losses": 5e-2}
    ok = all(seen[run][what] <= limit for run in limits for what, limit in limits[run].items())
    numbers = ", ".join(f"{dtype} {what} {value:.1e}" for dtype in seen for what, value in seen[dtype].items())
    return {"ok": ok, "seen": seen}, f"{'ok' if ok else 'NOT OK'}: {numbers}"


def deviation(item: Item, device: torch.device, dtype: torch.dtype, batches: int) -> dict[str, float]:
    """How far the speed-ups are from the baseline at worst: losses relative to each loss, gradients to each network's.

    Also the lowest cosine between a network's gradient and the baseline's.
    """
    plain, fast = (one.step(device, Watched, dtype=dtype) for one in (item.baseline(), item))
    losses, gradients, cosine = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64, device=device)
    for seed in range(batches):
        batch = item.batch(device, dtype, seed)
        with as_found(plain), as_found(fast):
            right, seen = (torch.stack(list(step(*batch).values())).double() for step in (plain, fast))
            losses = torch.maximum(losses, relative_differences(seen, right).max())
            for name, gradient in plain.gradients.items():
                other = fast.gradients[name]
                gradients = torch.maximum(gradients, (other - gradient).norm() / gradient.norm())
                cosine = torch.minimum(cosine, torch.cosine_similarity(other, gradient, dim=0))
    return {"losses": losses.item(), "gradients": gradients.item(), "1 - cosine": 1 - cosine.item()}


def drift(item: Item, device: torch.device, steps: int, dtype: torch.dtype = torch.float64) -> float:
    """How far the losses of a run over `steps` batches are from the baseline's at worst.

    Training magnifies every difference, so that of 200 steps rounding alone leaves nothing to compare: 50 are plenty.
    """
    plain, fast = (one.step(device, dtype=dtype) for one in (item.baseline(), item))
    for step in (plain, fast):
        step.lr = dict.fromkeys(step.lr, 2**-12)  # a graph holds it in float32, where this is the same number
        step.scale_lr(1.0)
    worst = torch.zeros((), dtype=torch.float64, device=device)
    for seed in range(steps):
        batch = item.batch(device, dtype, seed)
        right, seen = (torch.stack(list(step(*batch).values())).double() for step in (plain, fast))
        worst = torch.maximum(worst, relative_differences(seen, right).max())
    return worst.item()


def relative_differences(seen: Tensor, right: Tensor) -> Tensor:
    """Of losses, as shares of the right ones; 0 where both are 0, as a deviation loss is at first."""
    return torch.where(seen == right, 0.0, ((seen - right) / right).abs())


class Watched:
    """Goes outermost on a step: keeps each network's gradient of the newest update, unscaled, as one vector."""

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.gradients: dict[str, Tensor] = {}
        return super().build(betas)

    def update(self, player: str) -> None:
        scale = self.scaler.get_scale() if hasattr(self, "scaler") else 1.0
        learning = set(self.players[player])
        for name, network in self.model.named_children():
            if learning.issuperset(network.parameters()):
                gradients = [weight.grad.double().flatten() for weight in network.parameters()]
                self.gradients[name] = torch.cat(gradients) / scale
        super().update(player)


def measure_device(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """What the device can do at most: FLOP/s of matrix products by type, bytes/s of copies."""
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
    """The item in turn with eager PyTorch at its default flags; an item without speed-ups shows what is noise.

    Peak memory holds the model, its optimisers and all a step needs, but not the batch.

    Raises:
        LabkitError: a speed-up, or asking for TF32 to be on or off, does not suit the device.
    """
    if item.tf32 != "default" and not has_tf32(device):
        raise LabkitError("does not suit this device: it computes nothing in TF32")
    batch = item.batch(device)
    runs, peaks, flops = {}, {}, 0
    for name, one in (("baseline", item.baseline()), ("variant", item)):
        held = torch.cuda.memory_allocated() if device.type == "cuda" else None
        runs[name] = runner(one, device, batch)
        with flop_counter() if name == "baseline" else nullcontext() as counter:
            runs[name]()  # Adam makes its state, and cuDNN tries its kernels: neither is a step's usual need
        flops = flops or counter.get_total_flops()
        with PeakMemory() as peak:
            for _ in range(2):  # a graph is recorded in the third call of its step
                runs[name]()
        peaks[name] = None if held is None else peak.bytes - held
    a_round = sum(seconds[0] for seconds in alternate(runs, rounds=1, warmup=2).values())
    rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, int(item.seconds / 2 / a_round)))
    seconds = alternate(runs, rounds, warmup=0)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    row = {
        "rounds": rounds,
        "seconds": seconds,
        "median_s": medians,
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "ratio": ratio(seconds["variant"], seconds["baseline"]),
        "images_per_s": {name: item.batch_size / median for name, median in medians.items()},  # of either domain
        "peak_bytes": peaks,
        "flops": flops,  # the baseline's: what has to be computed, however often a step computes it
    }
    return row, f"{1e3 * medians['variant']:.1f} ms, {row['ratio']:.3f} times the baseline's"


def record_trace(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, of fewer steps than asked for if it would be too large a file; and the time of a step without profiler.

    Raises:
        LabkitError: the folder is full, or a single step makes too large a file.
    """
    path = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", item.key) + ".json.gz")
    if len({file.name for file in out.iterdir()} - {path.name, FILE}) >= MAX_TRACES:
        raise LabkitError(f"{out} holds {MAX_TRACES} files: go on in another folder, with these results as the earlier")
    batch = item.batch(device)
    step = item.step(device)
    steps = item.steps
    while steps:
        size = record(step, batch, path, steps).stat().st_size
        if size <= MAX_BYTES:
            seconds = statistics.median(alternate({"step": lambda: step(*batch)}, rounds=LEAST_ROUNDS)["step"])
            row = {"file": path.name, "bytes": size, "recorded_steps": steps, "seconds_per_step": seconds}
            return row, f"{steps} steps, {size / 1e6:.1f} MB, {1e3 * seconds:.1f} ms a step without profiler"
        path.unlink()
        steps = int(steps * 0.9 * MAX_BYTES / size)
    raise LabkitError(f"{path.name}: even one step is more than {MAX_BYTES / 1e6:g} MB")


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


def has_tf32(device: torch.device) -> bool:
    """Whether TF32 changes anything here: GPUs of compute capability 8.0 (Ampere) and later compute in it."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def runner(item: Item, device: torch.device, batch: Batch) -> Callable[[], None]:
    """A function that does what the item's scope says, once, under its TF32 flags."""
    step = item.step(device)

    def run() -> None:
        with flags(item.tf32):
            if item.scope == "forward":
                step.losses("generators", {"real_a": batch[0], "real_b": batch[1]})
            else:
                step(*batch)

    return run
