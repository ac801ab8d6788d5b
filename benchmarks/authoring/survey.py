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
import itertools
import math
import re
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from labkit.devices import out_of_memory, pick_device
from labkit.errors import LabkitError
from labkit.measure import alternate, copy_rate, flags, matmul_rate, run_in_subprocess, stamp
from labkit.measure.compare import SURVEY_FORMAT, as_json, compare, read_results, write_results
from labkit.measure.record import Pair, noise, record
from labkit.measure.same import relative, take_step
from labkit.measure.timing import has_tf32
from labkit.models import MODELS
from labkit.models.step import Step
from labkit.networks.light import LIGHT
from labkit.variants.registry import SPEEDUPS, make_step

RESULTS_FILE = "results.json"
NO_TIME = "no time left"
BATCH_THAT_FILLS_GPU = 16  # pictures in a batch, from which on we expect the GPU to be behind
MOST_DRIFT = 1e-6  # of a loss in a run in float64; a race shows only now and then

Stack = tuple[str, ...]  # names of speed-ups

RESNET, UNET = {"generator": "resnet_9blocks"}, {"generator": "unet_256"}
SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
LIGHTER = ("resnet_6blocks", "resnet_3blocks", *LIGHT)
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
BEST: Stack = ("graph", *FEWER_LAUNCHES, "bf16")
LEFT_OUT = ("winograd", "accumulate", "recompute", "compile", "data_parallel")


@dataclass(frozen=True)
class Item:
    """One thing to measure, which makes one row.

    Args:
        kind: a key of `MEASURES`; "device" ignores the arguments after the next.
        estimate_s: about how many seconds it takes on an H200. A survey learns how far off this is on its own device.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        benchmark: whether cuDNN tries its algorithms, as in the public reference, or guesses.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, steps to record, or rounds to time.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    estimate_s: float
    settings: dict = field(default_factory=dict)
    size: int = 256
    batch_size: int = 1
    tf32: str = "default"
    benchmark: bool = True
    speedups: Stack = ()
    steps: int = 0
    model: str = "CycleGAN"

    @property
    def key(self) -> str:
        """Its name in the results, for example "timing/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        guessing = "" if self.benchmark else "/benchmark=off"
        return f"{self.kind}/{self.called}/{self.size}/b{self.batch_size}/tf32={self.tf32}{guessing}/{self.stack}"

    @property
    def called(self) -> str:
        """The model's name and settings, for example "DeviationGAN,consistency=deviation_both"."""
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        return ",".join(named if self.model == "CycleGAN" else [self.model, *named])

    @property
    def stack(self) -> str:
        """Its speed-ups as one name, for example "streams+bf16"."""
        return "+".join(self.speedups) or "baseline"

    @contextmanager
    def flags(self) -> Iterator[None]:
        """Inside, PyTorch's flags are the item's."""
        with flags(self.tf32):
            torch.backends.cudnn.benchmark = self.benchmark
            yield

    def step(self, device: torch.device, dtype: torch.dtype | None = None, lr: float | None = None) -> Step:
        """A new step, always with the same initial weights; each call of it runs under the item's flags."""
        item = self

        class WithFlags:
            def __call__(self, real_a: torch.Tensor, real_b: torch.Tensor) -> dict[str, torch.Tensor]:
                with item.flags():
                    return super().__call__(real_a, real_b)  # type: ignore[misc]  # stacked on a step

        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            model = MODELS[self.model](**self.settings)
        # A rehearsal on a processor asks whether everything runs, not how fast.
        return make_step(model.to(dtype=dtype), WithFlags, *self.speedups, lr=lr, emulate=True)

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Pair:
        """Noise of the item's size."""
        return noise(self.batch_size, self.size, device, dtype, seed)


def gpu_plan() -> list[Item]:
    """A survey of a GPU, for calls of eight minutes each, the most important items first.

    The first call asks what the lab claims: the best stacks of ResNet-9 at batch 1 and 16, two streams against one, and
    whether the graph and these stacks are right. The second records traces, among them those that notebooks 03 to 06
    ask `labcourse.gpu_trace` for. Then come each speed-up alone, its correctness, one generator instead of two,
    U-Net-256, the light generators, TF32, and what else compiles. The estimates were measured on an H200.
    """
    alone: list[Stack] = [(name,) for name in SPEEDUPS if name not in LEFT_OUT]
    small: dict[str, Any] = dict(settings=SMALL, size=128, tf32="off", steps=50)  # a race shows only now and then
    both, one_or_two, nhwc = [1, 16], [(), ("streams",)], ("graph", "nhwc", "batched", "fused_adam", "bf16")
    timing = functools.partial(each, "timing", estimate_s=20, steps=10)
    race = functools.partial(each, "race", estimate_s=10, steps=10)
    trace, correct = functools.partial(each, "trace", estimate_s=30, steps=4), functools.partial(each, "correctness")
    in_turn: dict[str, Any] = dict(settings=RESNET, estimate_s=18, steps=20)
    plan = [
        Item("device", 10),
        *timing(both, [(), BEST, nhwc], settings=RESNET),
        *correct([2], [("graph",)], estimate_s=25, **small | {"steps": 200}),  # the longer, the more replays
        *timing([16], COMPILED[:1], settings=RESNET, estimate_s=90),
        *timing([16], [("bf16",)], settings=RESNET),
        *timing([1], [("graph",), FEWER_LAUNCHES, ("graph", *FEWER_LAUNCHES)], settings=RESNET),
        *(item for flag in (False, True) for item in each("streams", both, [()], benchmark=flag, **in_turn)),
        *correct([2], [BEST, ("streams",), nhwc], estimate_s=12, **small),
        *trace(both, [(), BEST, ("streams",)], settings=RESNET),
        *trace([1], [("graph", *FEWER_LAUNCHES)], settings=RESNET),
        *trace(both, [("bf16",)], settings=RESNET),
        *race(both, [(), BEST], model="DeviationGAN", settings={"consistency": "deviation_both"}),
        *timing([1], COMPILED[:1], settings=RESNET, estimate_s=90),
        *correct([1], [("channels_last",)], estimate_s=12, **small),  # some devices go wrong with one picture
        *correct([2], [*alone, ("streams", "bf16"), ("graph", "streams")], estimate_s=12, **small),
        *timing(both, [*alone, *STACKS], settings=RESNET),
        *trace(both, one_or_two, settings=RESNET, benchmark=False),
        *timing(both, [*one_or_two, ("bf16",), BEST], settings=UNET),
        *race(both, [(), BEST], model="DeviationGAN"),
        *trace([1], [FEWER_LAUNCHES, ("compile",)], settings=RESNET),
        *trace([16], [*one_or_two, BEST], settings=UNET),
        *(item for name in LIGHTER for item in race(both, [()], settings={"generator": name})),
        *timing(both, COMPILED[1:], settings=RESNET, estimate_s=90),
        *correct([2], COMPILED, estimate_s=60, **small),
        *(
            item
            for tf32 in ("on", "off")
            for net in (RESNET, UNET)
            for item in timing(both, [()], settings=net, tf32=tf32)
        ),
    ]
    once: dict[str, Item] = {}
    for item in plan:
        once.setdefault(item.key, item)
    return list(once.values())


def each(kind: str, batch_sizes: Iterable[int], stacks: Iterable[Stack], **fields: Any) -> list[Item]:
    """An item for each batch size and each stack."""
    made = itertools.product(batch_sizes, stacks)
    return [Item(kind, batch_size=batch_size, speedups=stack, **fields) for batch_size, stack in made]


def rehearsal_plan() -> list[Item]:
    """Items of every kind, small enough for a CPU, which leaves out the streams and TF32."""
    return [
        Item("correctness", 1, TINY, 64, tf32="off", speedups=("batched",), steps=6),
        Item("correctness", 1, TINY, 64, tf32="off", speedups=("streams",), steps=6),
        Item("device", 2),
        Item("timing", 1, TINY, 32, steps=6),
        Item("timing", 1, TINY, 32, tf32="off", steps=6),
        Item("timing", 1, TINY, 32, speedups=("bf16",), steps=6),
        Item("race", 1, TINY, 32, steps=6),
        Item("streams", 2, TINY, 32, benchmark=False, steps=6),
        Item("trace", 2, TINY, 32, steps=2),
    ]


def survey(out: Path, minutes: float = 8.5, device: str = "auto", plan: list[Item] | None = None) -> Path:
    """Measures the items of a plan until the time is up, and rewrites results.json after every item.

    A failure is noted, and the next call tries that item again, after all items that were never tried.

    Args:
        out: the folder for results.json and the traces. Results in it are continued.
        minutes: no item is started that would need longer. An item may overrun its estimate a little.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: the items, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.

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
    rows, skipped = results["rows"], results["skipped"]
    todo = [item for item in plan or (gpu_plan() if where.type == "cuda" else rehearsal_plan()) if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill lists the missing items
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # items that failed in an earlier call come last
    write_results(results, file)
    estimated = spent = 1.0  # seconds: how much longer than estimated items take here
    for item in todo:
        if deadline - time.monotonic() < item.estimate_s * spent / estimated:
            continue
        skipped[item.key] = "did not finish"
        write_results(results, file)
        started = time.monotonic()
        row, said = measured(item, where, out)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = said, f"skipped, {said}"
        else:
            del skipped[item.key]
            rows[item.key] = row | {"took_s": round(took, 1)}
            estimated, spent = estimated + item.estimate_s, spent + took
        write_results(results, file)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        gc.collect()  # a step and its optimisers refer to each other
        if where.type == "cuda":
            torch.cuda.synchronize()  # a GPU that has failed for good ends the survey here, with what it has
            torch.cuda.empty_cache()
    return file


def measured(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """An item's row and its result in words; or None, and the reason why there is no row."""
    try:
        with warnings.catch_warnings(), item.flags():
            # a speed-up that warns that it does nothing here is not timed as 1.00x
            warnings.filterwarnings("error", rf"({'|'.join(SPEEDUPS)}): ", UserWarning)
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


def compared(items: dict[str, Item], device: torch.device) -> tuple[dict, str]:
    """`labkit.compare` of the items, all against the first one: the row, and the result of the last one in words.

    Raises:
        LabkitError: the last one does not suit the device, or does not run on it.
    """
    item = list(items.values())[-1]
    makers = {name: functools.partial(one.step, device) for name, one in items.items()}
    table = compare(makers, item.batch(device), item.steps)
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
    """One stream and two, in turn, in a new process.

    PyTorch keeps the algorithm that cuDNN first chose for a shape, whatever the flag says later in the same process.
    """
    seconds = run_in_subprocess(streams_in_turn, item, device)
    medians = ", ".join(f"{name} {1e3 * statistics.median(each):.1f} ms" for name, each in seconds.items())
    return {"seconds": seconds}, medians


def streams_in_turn(item: Item, device: torch.device) -> dict[str, list[float]]:
    """Seconds of the item's steps with one stream and with two."""
    batch = item.batch(device)
    steps = {"one": item.step(device), "two": replace(item, speedups=("streams",)).step(device)}
    return alternate({name: functools.partial(step, *batch) for name, step in steps.items()}, item.steps)


def record_trace(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, recorded by a new process: otherwise the profiler would disturb all later traces and timings."""
    return run_in_subprocess(recorded, item, device, out)


def recorded(item: Item, device: torch.device, out: Path) -> tuple[dict, str]:
    """A trace, and a step's time without the profiler."""
    path = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", item.key) + ".json.gz")
    batch, step = item.batch(device), item.step(device)
    # Shapes cost time on the host, which changes nothing where the GPU is behind.
    size = record(step, batch, path, item.steps, shapes=item.batch_size >= BATCH_THAT_FILLS_GPU).stat().st_size
    seconds = statistics.median(alternate({"step": lambda: step(*batch)}, rounds=6)["step"])
    row = {"file": path.name, "seconds_per_step": seconds}
    return row, f"{size / 1e6:.1f} MB, {1e3 * seconds:.1f} ms a step without profiler"


MEASURES: dict[str, Callable[[Item, torch.device, Path], tuple[dict, str]]] = {
    "correctness": check_correctness,
    "device": measure_device,
    "timing": time_against_baseline,
    "race": race_against_cyclegan,
    "streams": time_streams,
    "trace": record_trace,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder; results in it are continued")
    parser.add_argument("--minutes", type=float, default=8.5, help="no measurement is started that would end later")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    print(survey(**vars(parser.parse_args())))
