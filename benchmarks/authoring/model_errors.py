"""The cost model confronted with reality: training steps that were recorded on a GPU, and are replayed without one.

    python -m benchmarks.authoring.model_errors          # writes data/results/model_errors.csv, for docs/trust.md

Nothing in these replays was fitted to the recordings, `labcourse.public_trace("resnet50_workers0")` of PyTorch's
profiler samples from June 2021, and `labcourse.gpu_trace`. A replay is given the program, the host's times and the
GPU's data sheet.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from dataclasses import replace as with_changes
from functools import cache

import pandas
import torch
import torchvision
from torch.nn.functional import cross_entropy
from torch.profiler import record_function

import labcourse
from labcourse.paper import STEPS, paper_profile
from labcourse.shipped import DATA
from labkit.models.cyclegan import CycleGAN
from labkit.models.step import RANGE
from labkit.simulate.cost_model import ROOFLINES, kernels
from labkit.simulate.meta_device import UPLOAD, Operator, step_operators
from labkit.simulate.operator_replay import RECORDED_HOST_US, replay
from labkit.simulate.predictions import program_operators
from labtrace.replay.recorded_replay import read_launches
from labtrace.replay.trace_file import Replay
from labtrace.trace import Trace

BATCH_SIZE, SIZE = 32, 224
# Kinds of work by the operator that launched it; the first that fits counts. All that an optimiser does is its own.
KINDS = {
    "convolutions": "conv",
    "matrix products": "::(?:add)?mm$",
    "normalisation": "batch_norm",
    "pooling and loss": "pool|::mean|softmax|nll_loss|::sum",
    "copies": "^upload|::copy_",
    "pointwise": "",
}
# PyTorch's own name for the sums that are gradients of a convolution's biases. Their addition counts as pointwise.
CYCLEGAN_KINDS = {
    "convolutions": "conv|::sum",
    "normalisation": "batch_norm",
    "padding": "_pad",
    "pointwise, copies": "",
}
OPTIMISER = "optimiser"

# The course paper did not pin its pictures, so they came at 2.8 GB/s: 1.57 MB in 0.56 ms (resnet_b1_baseline).
DEVICE = with_changes(ROOFLINES["A100"], host_bytes_per_s=2.8e9 / ROOFLINES["A100"].bytes_share)
PICTURES = 2  # copies from the host at the beginning of a step, one of each domain
COMPARED = ("resnet_b1_baseline", "resnet_b16_baseline", "unet_b16_baseline", "unet_b20_baseline")


@cache
def resnet50_operators() -> tuple[Operator, ...]:
    """The operators of one training step of the samples: batch 32 of 224 x 224 pictures, SGD with momentum.

    As the recordings show, PyTorch then updated each weight by itself (`foreach=False`), and `zero_grad` wrote zeros.
    """
    with torch.device("meta"):
        network = torchvision.models.resnet50()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9, foreach=False)
    loaded = torch.empty(BATCH_SIZE, 3, SIZE, SIZE), torch.zeros(BATCH_SIZE, dtype=torch.long)

    def step() -> None:
        pictures, labels = (tensor.to("meta") for tensor in loaded)
        loss = cross_entropy(network(pictures), labels)
        with record_function(RANGE + OPTIMISER):
            optimizer.zero_grad(set_to_none=False)
        loss.backward()
        with record_function(RANGE + OPTIMISER):
            optimizer.step()

    step()  # makes gradients and momenta
    return tuple(program_operators(step))


def replay_resnet50(recording: Trace) -> Replay:
    """The steps of a recording, replayed with its host's mean times on a V100's roofline: SIMULATED.

    The recording gives the number of steps, the host's time for loading a batch and its time for the launches of a
    step, which is spread evenly over the launches of the replay. As in the recording, the host waits for each upload,
    and not at the end of a step: the memory it copies from is not pinned.
    """
    (rank,) = recording.ranks.values()
    steps, operators, device = len(rank.steps), resnet50_operators(), ROOFLINES["V100"]
    a_step = sum(launch.host_us - launch.data_us for launch in read_launches(rank).launches) / steps
    host_us = a_step / len(kernels(operators, device))
    data_us = float((rank.loading.end - rank.loading.begin).mean())
    played = replay(operators, host_us, device, steps=steps, data_us=data_us)
    uploads = {place for place, launch in enumerate(played.launches) if "HtoD" in launch.name}
    return with_changes(played, synchronised=uploads)


def resnet50_errors(recording: Trace) -> pandas.DataFrame:
    """The replay of ResNet-50's step beside its recording: `model_errors`, on a V100."""
    return model_errors(recording, replay_resnet50(recording), KINDS)


def cyclegan_errors(recording: Trace, batch_size: int) -> pandas.DataFrame:
    """The replay of CycleGAN's plain step beside its recording by `labcourse.gpu_trace`: `model_errors`, on an H200.

    The recording gives the number of steps and the host's mean time for a launch.
    """
    (rank,) = recording.ranks.values()
    host_us = statistics.mean(launch.host_us for launch in read_launches(rank).launches)
    operators = step_operators(CycleGAN(), batch_size=batch_size)
    return model_errors(recording, replay(operators, host_us, ROOFLINES["H200"], steps=len(rank.steps)), CYCLEGAN_KINDS)


def model_errors(recording: Trace, played: Replay, kinds: dict[str, str]) -> pandas.DataFrame:
    """The replay beside its recording, in milliseconds a step.

    | column | meaning |
    |---|---|
    | part | wall, busy and idle of the GPU, and then the kernels by kind, the longest first |
    | recorded_ms, SIMULATED_ms | recorded and replayed, a step |
    | ratio | SIMULATED over recorded: 1 is right |
    """
    (rank,) = recording.ranks.values()
    steps = len(rank.steps)
    table = pandas.DataFrame(
        {"recorded_ms": _of(read_launches(rank), steps, kinds), "SIMULATED_ms": _of(played, steps, kinds)}
    )
    parts = recording.temporal().set_index("part")["us"]
    for part in ("wall", "busy", "idle"):  # as recorded, not as replayed
        table.loc[part, "recorded_ms"] = parts[part] / 1e3 / steps
    table["ratio"] = table["SIMULATED_ms"] / table["recorded_ms"]
    longest = table["recorded_ms"].drop(["wall", "busy", "idle"]).sort_values(ascending=False).index
    table = table.loc[["wall", "busy", "idle", *longest]].rename_axis("part").reset_index()
    table.attrs["stamp"] = {"SIMULATED": True, "recording": recording.stamp}
    return table


def _of(played: Replay, steps: int, kinds: dict[str, str]) -> dict[str, float]:
    """Milliseconds a step: wall, busy and idle time of the GPU, and the kernels' durations by kind."""
    timeline = played.timeline
    wall = float(timeline.kernel_end.max() - timeline.kernel_start.min())
    us = defaultdict(float, {"wall": wall, "busy": timeline.busy, "idle": wall - timeline.busy})
    for launch, source in zip(played.launches, played.sources, strict=True):
        kind = next(kind for kind, pattern in kinds.items() if re.search(pattern, source.operator_name))
        us[OPTIMISER if re.search("(?i)optimi[sz]er", source.range) else kind] += launch.kernel_us
    return {part: total / 1e3 / steps for part, total in us.items()}


def paper_errors() -> pandas.DataFrame:
    """The replay beside the course paper's tables of one stream, in milliseconds a step.

    The step's span in the tables is too short to hold the copies of its pictures as well, so it begins after them.

    Calibrated on the table of batch 1 were the host's time for a launch, the rate of copies from its memory, and the
    numbers that `labkit.simulate.cost_model` calls so. The rest is predicted.

    Returns:
        | column | meaning |
        |---|---|
        | profile | a name for `paper_profile` |
        | part | "step", from its first kernel to its last, or "work on the GPU" |
        | table_ms, SIMULATED_ms | recorded and replayed, a step |
        | ratio | SIMULATED over recorded: 1 is right |
    """
    rows = []
    for name in COMPARED:
        profile = paper_profile(name)
        stamp = profile.attrs["stamp"]
        played = replay(_paper_operators(stamp["generator"], stamp["batch_size"]), RECORDED_HOST_US, DEVICE, steps=1)
        step_us = profile.set_index("name")["self_cuda_us"]["ProfilerStep*"] / STEPS
        rows += [
            (name, "step", step_us, played.timeline.wall - played.timeline.kernel_start[PICTURES]),
            (name, "work on the GPU", stamp["gpu_us"] / STEPS, sum(one.kernel_us for one in played.launches)),
        ]
    table = pandas.DataFrame(rows, columns=["profile", "part", "table_ms", "SIMULATED_ms"])
    table[["table_ms", "SIMULATED_ms"]] /= 1e3
    table.attrs["stamp"] = {"SIMULATED": True, "device": DEVICE.device}
    return table.assign(ratio=table["SIMULATED_ms"] / table["table_ms"])


@cache
def _paper_operators(generator: str, batch_size: int) -> list[Operator]:
    """A step's operators, after the copies of its pictures from the host."""
    shape = (batch_size, 3, 256, 256)
    bytes_moved = 2 * 4 * batch_size * 3 * 256 * 256  # float32, read and written
    picture = Operator(UPLOAD, (shape,), (shape,), "float32", 0, bytes_moved, "data", False, 0, ())
    return [*[picture] * PICTURES, *step_operators(CycleGAN(generator), batch_size=batch_size)]


if __name__ == "__main__":
    tables = {"ResNet-50, V100": resnet50_errors(labcourse.public_trace("resnet50_workers0"))}
    for size in (1, 16):
        tables[f"CycleGAN, H200, batch {size}"] = cyclegan_errors(labcourse.gpu_trace(batch_size=size), size)
    table = pandas.concat(tables, names=["step"]).droplevel(1).round(2)
    table.to_csv(DATA / "results" / "model_errors.csv")
    print(table.to_string())
