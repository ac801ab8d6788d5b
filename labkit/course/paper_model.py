"""The cost model confronted with the course paper's tables: a step of CycleGAN replayed, and recorded on an A100."""

from __future__ import annotations

from dataclasses import replace as with_changes
from functools import cache

import pandas

from labkit.course.paper import STEPS, paper_profile
from labkit.models.cyclegan import CycleGAN
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.operator_replay import RECORDED_HOST_US, replay
from labkit.simulate.operators import UPLOAD, Operator, step_operators

# The course paper did not pin its pictures, so they came at 2.8 GB/s: 1.57 MB in 0.56 ms (resnet_b1_baseline).
DEVICE = with_changes(ROOFLINES["A100"], host_bytes_per_s=2.8e9 / ROOFLINES["A100"].bytes_share)
LAYOUT = r"nchwToNhwc|nhwcToNchw|FoldedNhwc|foldedNhwc|tensorTransform|nchwAddPadding"
# Kinds of work: the names in a table that are added up, those that are subtracted, and the kernels of a replay.
KINDS = {
    "convolutions": (r"^aten::(?:convolution_b|cudnn_conv)", LAYOUT, r"^convolution(?: grad_input| grad_weight)?$"),
    "layout conversions": (LAYOUT, "", r"^n(?:chw|hwc)To"),
    "normalisation": (r"::batch_norm_(?:coll|trans|back)", "", r"^batch_norm_(?:coll|trans|back)"),
    "padding": (r"^void.*::reflection_p", "", r"^reflection_pad2d"),
    "copies on the GPU": (r"^aten::copy_$", "HtoD", "DtoD"),
    "copies from the host": ("HtoD", "", "HtoD"),
    "sums for bias gradients": (r"^aten::sum$", "", "grad_bias"),
    "gradients of activations": (r"^aten::(?:threshold|leaky_relu|tanh)_b", "", r"(?:threshold|relu|tanh)_backward"),
}
# A table has 100 names only. Where it lacks kernels of a kind, they are left out of the replay, too.
MISSING = {"resnet_b1_baseline": r"^(?:batch_norm|reflection_pad2d)_backward"}
PICTURES = 2  # copies from the host at the beginning of a step, one of each domain
COMPARED = ("resnet_b1_baseline", "resnet_b16_baseline", "unet_b16_baseline", "unet_b20_baseline")


def paper_errors() -> pandas.DataFrame:
    """The replay beside the course paper's tables of one stream, in milliseconds a step.

    The step's span in the tables is too short to hold the copies of its pictures as well, so it begins after them.

    Calibrated on the table of batch 1 were the host's time for a launch, the rate of copies from its memory, and the
    numbers that `labkit.simulate.cost_model` calls so. The rest is predicted.

    Returns:
        | column | meaning |
        |---|---|
        | profile | a name for `labkit.course.paper_profile` |
        | part | the step (from its first kernel to its last), the work on the GPU, or one kind of this work |
        | table_ms, SIMULATED_ms | recorded and replayed, a step |
        | ratio | SIMULATED over recorded: 1 is right |
        | share | of the recorded work on the GPU |
    """
    table = pandas.concat([_of_profile(name) for name in COMPARED], ignore_index=True)
    table["ratio"] = table["SIMULATED_ms"] / table["table_ms"]
    work = table[table["part"] == "work on the GPU"].set_index("profile")["table_ms"]
    table["share"] = table["table_ms"] / table["profile"].map(work)
    table.attrs["stamp"] = {"SIMULATED": True, "device": DEVICE.device}
    return table


def _of_profile(name: str) -> pandas.DataFrame:
    profile = paper_profile(name)
    stamp = profile.attrs["stamp"]
    played = replay(_operators(stamp["generator"], stamp["batch_size"]), RECORDED_HOST_US, DEVICE, steps=1)
    kernels = pandas.Series([one.kernel_us for one in played.launches], [one.name for one in played.launches])
    recorded = profile.set_index("name")["self_cuda_us"] / STEPS
    rows = {
        "step": (recorded["ProfilerStep*"], played.timeline.wall - played.timeline.kernel_start[PICTURES]),
        "work on the GPU": (stamp["gpu_us"] / STEPS, kernels.sum()),
    }
    if name in MISSING:
        kernels = kernels[~kernels.index.str.contains(MISSING[name])]
    for kind, (added, subtracted, replayed) in KINDS.items():
        us = _matching(recorded, added) - (_matching(recorded, subtracted) if subtracted else 0.0)
        if us:
            rows[kind] = us, _matching(kernels, replayed)
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["table_ms", "SIMULATED_ms"]) / 1e3
    table = table.rename_axis("part").reset_index()
    return table.assign(profile=name)[["profile", *table.columns]]


def _matching(us: pandas.Series, pattern: str) -> float:
    return float(us[us.index.str.contains(pattern)].sum())


@cache
def _operators(generator: str, batch_size: int) -> list[Operator]:
    """A step's operators, after the copies of its pictures from the host."""
    shape = (batch_size, 3, 256, 256)
    bytes_moved = 2 * 4 * batch_size * 3 * 256 * 256  # float32, read and written
    picture = Operator(UPLOAD, (shape,), (shape,), "float32", 0, bytes_moved, "data", False, 0, ())
    return [*[picture] * PICTURES, *step_operators(CycleGAN(generator), batch_size=batch_size)]
