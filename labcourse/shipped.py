"""Measurements that are shipped with the lab in data/: GPU traces, timed steps, and studies of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch

from labkit.data.images import read_picture
from labkit.devices import pick_device
from labkit.errors import LabkitError
from labkit.measure.record import noise, record
from labkit.measure.tables import from_json, read_results, read_table
from labkit.measure.timing import interval, ratios
from labkit.models.cyclegan import CycleGAN
from labkit.models.model import Model
from labkit.training.checkpoints import load_model
from labkit.variants.registry import make_step
from labtrace.errors import check_known
from labtrace.trace import Trace

if TYPE_CHECKING:
    import pandas

DATA = Path(__file__).parents[1] / "data"  # in a clone; an installed package has none
PUBLIC = DATA / "traces" / "public"  # recordings by others
GPU_TRACE_SETTINGS = {"model": "CycleGAN", "benchmark": True, "tf32": "default", "size": 256}  # by `gpu_trace`
BENCHMARK_OFF = "benchmark_off_"  # begins the names of recordings without cuDNN's benchmark mode
STUDY_PICTURES = 9  # test pictures in each row of quality/STUDY/*.png
NOT_SHIPPED = "is not shipped here: use a clone of labkit. Its data/README.md names the tools that make it."


def shipped(pattern: str) -> list[Path]:
    """The files or folders in data/ that fit a pattern. Raises `LabkitError` if there are none."""
    if not (found := sorted(DATA.glob(pattern))):
        raise LabkitError(f"{DATA / pattern} {NOT_SHIPPED}")
    return found


def gpu_trace(
    *speedups: str,
    batch_size: int = 1,
    generator: str = "resnet_9blocks",
    afresh: bool = False,
    benchmark: bool = True,
) -> Trace:
    """A recording of CycleGAN's training step on 256 x 256 pictures. Its stamp names the GPU.

    The first one found in data/traces/<device>/ is returned.

    Args:
        speedups: names from `labkit.speedups()`.
        batch_size: pictures of each domain.
        generator: as for `labkit.CycleGAN`.
        afresh: record on this machine's GPU instead, into out/recorded.
        benchmark: False for a recording with cuDNN's benchmark mode off. Such a recording is not made afresh.

    Raises:
        LabkitError: there is no such recording here. Only a clone of labkit has them, an installed package does not.
            Or `afresh` without a GPU, or with an unknown speed-up.
    """
    name = trace_name(generator, batch_size, speedups)
    if afresh and benchmark:
        # In a new process: CUPTI, through which the profiler observes the GPU, stays loaded after its first use, and
        # before CUDA 13.1 Update 1 it gives the kernels of CUDA graphs wrong correlation ids in every recording of a
        # process but the first (NVIDIA's release notes of CUPTI).
        process, device = ProcessPoolExecutor(1, max_tasks_per_child=1), pick_device("cuda")  # a spawned one
        return Trace(process.submit(_recorded, name, speedups, batch_size, generator, device).result())
    start = "" if benchmark else BENCHMARK_OFF
    if found := sorted(DATA.glob(f"traces/*/{start}{name}")):
        return Trace(found[0])
    sizes = [n for n in range(1, 65) if any(DATA.glob(f"traces/*/{start}{trace_name(generator, n, speedups)}"))]
    advice = f"is not shipped: choose batch_size {' or '.join(map(str, sizes))}." if sizes else NOT_SHIPPED
    raise LabkitError(f"{start}{name} {advice}")


def public_trace(name: str) -> Trace:
    """A GPU recording of a real training that others have published. Its stamp names the device and the source.

    Args:
        name: "resnet50_workers0" and "resnet50_workers4" are the same training of ResNet-50 on a V100, without and with
            loader workers. "v100_nanoseconds" has times in nanoseconds. "a100_streams" is one rank of eight, on several
            streams. "rtx5080_launch_by_launch" and "rtx5080_cuda_graph" are the same training without and with a CUDA
            graph. "dlrm_8_ranks" are all ranks of one step on eight GPUs. data/README.md says where they come from.

    Raises:
        LabkitError: there is no such recording here. Only a clone of labkit has them, an installed package does not.
    """
    files = {file.name.removesuffix(".json.gz"): file for file in PUBLIC.iterdir() if not file.match("LICENSE*")}
    if not files:
        raise LabkitError(f"{PUBLIC} {NOT_SHIPPED}")
    check_known("name", name, files)
    return Trace(files[name])


def trace_name(generator: str, batch_size: int, speedups: Iterable[str]) -> str:
    """The name of the file with such a step's trace, in data/traces/<device>/."""
    return f"{generator}_b{batch_size}_{'+'.join(sorted(speedups)) or 'baseline'}.json.gz"


def shipped_as(row: Mapping) -> str | None:
    """`trace_name` for a row of a visit's results, or None for a trace that `gpu_trace` is never asked for."""
    if any(row[name] != value for name, value in GPU_TRACE_SETTINGS.items()):
        return None
    return trace_name(row["settings"]["generator"], row["batch_size"], row["speedups"])


def _recorded(name: str, speedups: tuple[str, ...], batch_size: int, generator: str, device: torch.device) -> Path:
    step = make_step(CycleGAN(generator).to(device), *speedups)
    return record(step, noise(batch_size, 256, device), Path("out", "recorded", name), steps=3)


def gpu_steps(device: str = "h200") -> pandas.DataFrame:
    """Every step that `labkit.compare` timed on a GPU, against CycleGAN's plain step in turn in the same process.

    | column | unit | meaning |
    |---|---|---|
    | model, batch_size, speedups | | of the step, on pictures of 256 x 256 pixels |
    | ms | milliseconds | the median, measured |
    | baseline_ms | milliseconds | of CycleGAN in turn with it, for another model with the same speed-ups |
    | times_faster, low, high | | than that CycleGAN; a 95% interval |
    | verdict | | as `labkit.compare` has it |
    | SIMULATED_ms | milliseconds | predicted before it was measured; NaN where the model knows no operators |

    Args:
        device: as data/results/<device>.json is called.
    """
    import pandas

    results = read_results(DATA / "results" / f"{device}.json")
    predicted = pandas.read_csv(DATA / "results" / f"{device}_predicted.csv", index_col="key").iloc[:, -1]
    rows = []
    for key, row in results["rows"].items():
        if row["kind"] in ("timing", "race") and row["tf32"] == "default":
            first, *_, last = from_json(row["comparison"]).itertuples()
            about = [row["model"], row["batch_size"], "+".join(row["speedups"]) or "baseline", 1e3 * last.median_s]
            faster = [1e3 * first.median_s, last.times_faster, last.times_faster_low, last.times_faster_high]
            rows.append([*about, *faster, last.verdict, predicted.get(key, float("nan"))])
    named = "model batch_size speedups ms baseline_ms times_faster low high verdict SIMULATED_ms".split()
    table = pandas.DataFrame(rows, columns=named)
    table.attrs["stamp"] = results["stamp"]
    return table


def gpu_streams(device: str = "h200") -> pandas.DataFrame:
    """Two streams against one, in turn in one process without a profiler, with cuDNN's benchmark mode off and on.

    A row has `batch`, `benchmark`, milliseconds of a step `one_ms` and `two_ms`, and how many `times_faster` two are,
    with its 95% interval from `low` to `high`. `device` is as for `gpu_steps`.
    """
    import pandas

    results = read_results(DATA / "results" / f"{device}.json")
    rows = []
    for row in results["rows"].values():
        if row["kind"] == "streams":
            faster = ratios(row["seconds"]["one"], row["seconds"]["two"])
            ms = [1e3 * median(seconds) for seconds in row["seconds"].values()]
            rows.append([row["batch_size"], row["benchmark"], *ms, median(faster), *interval(faster)])
    table = pandas.DataFrame(rows, columns=["batch", "benchmark", "one_ms", "two_ms", "times_faster", "low", "high"])
    table.attrs["stamp"] = results["stamp"]
    return table.sort_values(["batch", "benchmark"], ignore_index=True)


def study(name: str) -> pandas.DataFrame:
    """The measurements of many training runs, on the fruit or photographs, made by the tools that data/README.md names.

    Args:
        name: "one_generator", "ablation", "deviation", "lighter" or "batch", or "apart" or "averaged" for several
            processes, or "checkerboards" or "photographs", both of examples/photographs.py. "jobs" holds seconds of
            trainings at once, and "full_size" times of single steps in the form of `labkit.compare`.

    Raises:
        LabkitError: there is no such study here. Only a clone of labkit has them, an installed package does not.
    """
    return read_table(shipped(f"quality/{name}.json")[0])


def study_pictures(name: str) -> dict[str, torch.Tensor]:
    """The best pictures of each run of a study in its first 100 seconds, by the run's name, ``uint8``.

    Each tensor is of shape (1 + seeds, 9, 3, 64, 64): a row of test pictures, six apples and three oranges, then for
    each seed the run's translations of these pictures from apples to oranges.

    Raises:
        LabkitError: as `study`.
    """
    grids = {file.stem: read_picture(file) for file in shipped(f"quality/{name}/*.png")}
    return {run: _cut(grid, grid.shape[-1] // STUDY_PICTURES) for run, grid in grids.items()}


def _cut(grid: torch.Tensor, size: int) -> torch.Tensor:
    """(3, rows * size, 9 * size) -> (rows, 9, 3, size, size)."""
    return grid.unflatten(2, (STUDY_PICTURES, size)).unflatten(1, (-1, size)).permute(1, 3, 0, 2, 4)


def deviation_models() -> dict[float, Model]:
    """Models of the study "deviation", trained on the fruit, by the weight of their deviation loss.

    Raises:
        LabkitError: as `study`.
    """
    folders = shipped("checkpoints/deviation_*")
    return {float(folder.name.removeprefix("deviation_")): load_model(folder) for folder in folders}
