"""The items of a survey, and what each kind of them measures; see `tools/survey.py`."""

import functools
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.devices import instance_norm_is_wrong
from labkit.errors import LabkitError
from labkit.measure import alternate, copy_rate, flags, matmul_rate, preserving_state, synchronise
from labkit.measure.compare import compare
from labkit.measure.record import Batch, noise, record
from labkit.measure.results import as_json
from labkit.measure.timing import has_tf32
from labkit.measure.updates import relative, run
from labkit.models import MODELS
from labkit.models.cyclegan import CycleGAN, CycleGANStep, Journey
from labkit.models.step import Step
from labkit.simulate.operators import call_on, signature
from labkit.variants.registry import SPEEDUPS, make_step

MAX_TRACES, MAX_BYTES = 7, 9_000_000  # with the results eight files, which together stay below 64 MiB
GPU_BUSY = 16  # pictures in a batch, from which on we expect the GPU to be behind
MOST_DRIFT = 1e-6  # of a loss in a run in float64; a race shows only now and then
ENERGY_ROUNDS, ENERGY_SECONDS = 3, 1.0  # the counter advances in steps of about a tenth of a second
REPEATS, HEAD_START = 10, 10_000_000  # clock cycles, some milliseconds

RESNET = {"generator": "resnet_9blocks"}

Stack = tuple[str, ...]  # names of speed-ups


@dataclass(frozen=True)
class Item:
    """One thing to measure, which makes one row.

    Args:
        kind: "correctness", "device", "timing", "race", "energy", "trace" or "durations"; "device" ignores the
            arguments after the next.
        estimate_s: about how many seconds it takes on an H200. A survey learns how far off this is on its own device.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        scope: "step", or "forward": CycleGAN's two cycles without identity, as the course paper timed them.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, steps to record, or rounds to time.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    estimate_s: float
    settings: dict = field(default_factory=dict)
    size: int = 256
    batch_size: int = 1
    scope: str = "step"
    tf32: str = "default"
    speedups: Stack = ()
    steps: int = 0
    model: str = "CycleGAN"

    @property
    def key(self) -> str:
        """Its name in the results, for example "timing/step/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        return f"{self.kind}/{self.scope}/{self.called}/{self.size}/b{self.batch_size}/tf32={self.tf32}/{self.stack}"

    @property
    def called(self) -> str:
        """The model's name and settings, for example "DeviationGAN,consistency=deviation_both"."""
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        return ",".join(named if self.model == "CycleGAN" else [self.model, *named])

    @property
    def stack(self) -> str:
        """Its speed-ups as one name, for example "streams+bf16"."""
        return "+".join(self.speedups) or "baseline"

    def baseline(self) -> "Item":
        """The item to compare it with: no speed-ups, and PyTorch's own flags."""
        return replace(self, speedups=(), tf32="default")

    def cyclegan(self) -> "Item":
        """CycleGAN with ResNet-9 and the same speed-ups; for another generator of CycleGAN also as wide as that."""
        settings = self.settings | RESNET if self.model == "CycleGAN" else RESNET
        return replace(self, model="CycleGAN", settings=settings)

    def step(self, device: torch.device, dtype: torch.dtype | None = None, lr: float | None = None) -> Step:
        """A new step, always with the same initial weights; each call of it runs under the item's flags."""
        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            kind = Cycles if self.scope == "forward" else MODELS[self.model]
            model = kind(**self.settings, **({"lambda_identity": 0.0} if kind is Cycles else {}))
        # A rehearsal on a processor asks whether everything runs, not how fast.
        return make_step(model.to(dtype=dtype), with_flags(self.tf32), *self.speedups, lr=lr, emulate=True)

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Batch:
        """Noise of the item's size."""
        return noise(self.batch_size, self.size, device, dtype, seed)


def with_flags(tf32: str) -> type:
    """A class for `make_step`: each call of the step runs under these flags."""

    class WithFlags:
        def __call__(self, real_a: torch.Tensor, real_b: torch.Tensor) -> dict[str, torch.Tensor]:
            with flags(tf32):
                return super().__call__(real_a, real_b)  # type: ignore[misc]  # stacked on a step

    return WithFlags


class CyclesStep(CycleGANStep):
    """CycleGAN's two cycles alone, forward only: through the seams, which speed-ups change."""

    def run(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: pictures.detach().mean() for name, pictures in self.losses("generators", batch).items()}

    def generators(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        a_to_b, b_to_a = self.model.G_A, self.model.G_B
        journeys = [Journey(a_to_b, b_to_a, batch["real_a"], None), Journey(b_to_a, a_to_b, batch["real_b"], None)]
        return {f"back_{name}": cycle.back for name, cycle in zip("AB", self.cycles(journeys), strict=True)}


class Cycles(CycleGAN):
    """CycleGAN for timing its two cycles alone."""

    step_class = CyclesStep
    loss_names = ("back_A", "back_B")


def compared(items: dict[str, Item], device: torch.device) -> tuple[dict, str]:
    """`labkit.compare` of the last item with the first one: the row, and the result in words.

    Raises:
        LabkitError: the item does not suit the device, or does not run on it.
    """
    (_, base), (name, item) = list(items.items())[0], list(items.items())[-1]
    if item.tf32 != base.tf32 and not has_tf32(device):
        raise LabkitError("does not suit this device: it computes nothing in TF32")
    makers = {name: functools.partial(one.step, device) for name, one in items.items()}
    table = compare(makers, item.batch(device), item.steps)
    verdict, why = table.loc[name, ["verdict", "why"]]
    if math.isnan(table.loc[name, "median_s"]):
        raise LabkitError(f"{verdict}: {why}")
    return {"comparison": as_json(table)}, f"{1e3 * table.loc[name, 'median_s']:.1f} ms, {verdict}, {why}"


def check_correctness(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A comparison over many rounds; of an exact stack also a long run in float64, whose losses stay the baseline's.

    Training magnifies every difference, so that after 200 steps rounding alone would leave nothing to compare. So after
    every 50 batches the baseline goes on from the step's state. The step itself is never interrupted.
    """
    row, said = compared({"baseline": replace(item, speedups=()), item.stack: item}, device)
    seen = {}
    if all(SPEEDUPS[name].tolerance == "exact" for name in item.speedups):
        lr = 2**-12  # a graph holds it in float32, where it is the same number
        step, baseline = (one.step(device, torch.float64, lr) for one in (item, item.baseline()))
        apart = []
        for number in range(item.steps):
            if number and number % 50 == 0:
                baseline.load_state_dict(step.state_dict())
            batch = item.batch(device, torch.float64, number)
            mine, right = run(step, batch, item.stack), run(baseline, batch, "baseline")
            apart += [relative(mine[name].item(), loss.item()) for name, loss in right.items()]
        seen["run losses"] = max(apart, key=lambda one: math.inf if math.isnan(one) else one)
    ok = "not equivalent" not in said and all(one <= MOST_DRIFT for one in seen.values())
    return row | {"ok": ok, "seen": seen}, f"{'ok' if ok else 'NOT OK'}: {seen}, {said}"


def measure_device(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The device's limits: FLOP/s of matrix products by type, bytes/s of copies. And a known bug: see channels_last."""
    rates = {"float32": matmul_rate(device)}
    if has_tf32(device):
        with flags("on"):
            rates["tf32"] = matmul_rate(device)
    if device.type == "cuda":  # a CPU may take half a minute for this in float16
        rates |= {name: matmul_rate(device, getattr(torch, name)) for name in ("bfloat16", "float16")}
    copied, wrong = copy_rate(device), instance_norm_is_wrong(device)
    row = {"matmul_flop_per_s": rates, "copy_bytes_per_s": copied, "instance_norm_is_wrong": wrong}
    return row, str(row)


def time_against_baseline(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """The item against eager PyTorch at its default flags; without speed-ups, that alone."""
    name = item.stack if item.tf32 == "default" else f"tf32={item.tf32}"
    return compared({"baseline": item.baseline(), name: item}, device)


def race_against_cyclegan(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Another model against CycleGAN, both with the same speed-ups."""
    return compared({"CycleGAN": item.cyclegan(), item.called: item}, device)


def measure_energy(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """Joules a step of the item and of its baseline, measured in turn.

    Source: NVML's nvmlDeviceGetTotalEnergyConsumption, for GPUs since the V100 and T4.
    """
    if device.type != "cuda":
        raise LabkitError("does not suit this device: only GPUs count the energy they use")
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    batch = item.batch(device)
    steps = {"baseline": item.baseline().step(device), item.stack: item.step(device)}
    runs = {name: functools.partial(step, *batch) for name, step in steps.items()}
    alternate(runs, rounds=1)  # libraries choose their kernels, a graph is recorded
    used: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ENERGY_ROUNDS):
        for name, run_once in runs.items():
            used[name].append(joules(run_once, lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3))
    before, after = map(statistics.median, used.values())
    return {"joules_per_step": used}, f"{after:.3g} J a step, the baseline {before:.3g} J"


def joules(run_once: Callable[[], object], counter: Callable[[], float]) -> float:
    """Joules of one run: the mean over as many as fit into `ENERGY_SECONDS`."""
    synchronise()
    before, started, runs = counter(), time.perf_counter(), 0
    while time.perf_counter() - started < ENERGY_SECONDS:
        run_once()
        synchronise()
        runs += 1
    return (counter() - before) / runs


def record_trace(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, of fewer steps than asked for if its file would be too large; and a step's time without profiler."""
    path = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", item.key) + ".json.gz")
    if len({file.name for file in out.iterdir() if file.suffix != ".json"} - {path.name}) >= MAX_TRACES:
        raise LabkitError(f"{out} holds {MAX_TRACES} files: use another folder, with these results as the earlier")
    batch, step, steps = item.batch(device), item.step(device), item.steps
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
    microseconds = operator_durations(item.step(device), item.batch(device))
    return {"microseconds": microseconds}, f"{len(microseconds)} signatures"


def operator_durations(step: Step, batch: Batch) -> dict[str, float]:
    """Microseconds that each operator of the step takes on its device, by `labkit.simulate.operators.signature`.

    Each signature is measured where it first occurs, ten times in a row on the very tensors of the step; afterwards
    the step has its state from before. On a GPU all ten are launched while it is still busy with other work, so that
    the time does not include the host's launch overhead.
    """
    with preserving_state(step):
        step(*batch)  # libraries choose their kernels, Adam makes its state
        with Stopwatch(batch[0].device) as stopwatch:
            step(*batch)
    return stopwatch.microseconds


class Stopwatch(TorchDispatchMode):
    """Measures every operator whose signature it has not seen yet."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.microseconds: dict[str, float] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        call = call_on(self.device.type, operator, args, kwargs, result)
        key = call and signature(call.name, *call.shapes, call.dtype)
        if key and key not in self.microseconds:
            self.microseconds[key] = self.measure(lambda: operator(*args, **kwargs))
        return result

    def measure(self, call: Callable[[], Any]) -> float:
        """Microseconds of one call."""
        if self.device.type != "cuda":
            started = time.perf_counter()
            for _ in range(REPEATS):
                call()
            return 1e6 * (time.perf_counter() - started) / REPEATS
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START)
        begin.record()
        for _ in range(REPEATS):
            call()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / REPEATS


MEASURES: dict[str, Callable[[Item, torch.device, Path], tuple[dict, str]]] = {
    "correctness": check_correctness,
    "device": measure_device,
    "timing": time_against_baseline,
    "race": race_against_cyclegan,
    "energy": measure_energy,
    "trace": record_trace,
    "durations": measure_durations,
}
