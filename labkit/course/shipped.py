"""The GPU traces that notebooks show: recorded here, or shipped with the lab or, failing both, SIMULATED."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from labkit.devices import pick_device
from labkit.measure.record import record, run_in_subprocess
from labkit.models.cyclegan import CycleGAN
from labkit.simulate import record_operators, replay, write_trace
from labkit.traces.trace import Trace
from labkit.variants.registry import make_step

DATA = Path(__file__).parents[2] / "data"  # in a clone; an installed package has none
HOST_US = 40.0  # SIMULATED: an assumption, to be varied
STEPS = 3
ASKED_FOR = {"model": "CycleGAN", "scope": "step", "tf32": "default", "size": 256}  # by `gpu_trace`


def gpu_trace(
    *speedups: str,
    batch_size: int = 1,
    generator: str = "resnet_9blocks",
    afresh: bool = False,
    host_us: float = HOST_US,
) -> Trace:
    """The trace of CycleGAN's training step at full size, on pictures of 256 x 256 pixels; its stamp says of which GPU.

    It is looked for in data/traces/<device>/, of which the first is taken. If there is none, the step is replayed
    without a GPU: the trace is SIMULATED, and its stamp says so.

    Args:
        speedups: names from `labkit.speedups()`.
        batch_size: pictures of either domain.
        generator: as for `labkit.CycleGAN`.
        afresh: record on this machine's GPU instead, into out/recorded.
        host_us: SIMULATED: the host's microseconds for every launch.

    Raises:
        LabkitError: afresh without a GPU; or a speed-up is unknown, or has no recording and cannot be replayed.
    """
    name = trace_name(generator, batch_size, speedups)
    if afresh:
        return Trace(run_in_subprocess(_recorded, name, speedups, batch_size, generator, pick_device("cuda")))
    if shipped := sorted((DATA / "traces").glob(f"*/{name}")):
        return Trace(shipped[0])
    graph = "graph" in speedups  # changes how kernels are launched, and no operator
    recordable = [speedup for speedup in speedups if speedup != "graph"]
    operators = record_operators(CycleGAN(generator), *recordable, batch_size=batch_size)
    path = Path("out", "simulated", name)
    return Trace(write_trace(replay(operators, host_us, graph=graph, steps=STEPS), path))


def trace_name(generator: str, batch_size: int, speedups: Iterable[str]) -> str:
    """The file that holds the trace of such a step, in data/traces/<device>/."""
    return f"{generator}_b{batch_size}_{'+'.join(sorted(speedups)) or 'baseline'}.json.gz"


def shipped_as(row: Mapping) -> str | None:
    """As `trace_name`, of a row of a survey's results; None for a trace that `gpu_trace` is never asked for."""
    if any(row[name] != value for name, value in ASKED_FOR.items()):
        return None
    return trace_name(row["settings"]["generator"], row["batch_size"], row["speedups"])


def _recorded(name: str, speedups: tuple[str, ...], batch_size: int, generator: str, device: torch.device) -> Path:
    step = make_step(CycleGAN(generator).to(device), *speedups)
    batch = tuple(torch.rand(batch_size, 3, 256, 256, device=device) * 2 - 1 for _ in range(2))
    return record(step, batch, Path("out", "recorded", name), steps=STEPS)


def gpu_results() -> dict[str, dict]:
    """What surveys measured on GPUs, shipped with the lab: by device, as `labkit.measure.survey.read` gives it.

    Empty as long as none is shipped. The files are data/results/<device>.json.
    """
    from labkit.measure.survey import read  # takes a second, and only this needs it

    return {file.stem: read(file) for file in sorted((DATA / "results").glob("*.json"))}
