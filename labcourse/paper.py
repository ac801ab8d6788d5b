"""The course paper's profiler tables, as its authors published them."""

from __future__ import annotations

import pandas

from labcourse.shipped import shipped
from labtrace.errors import check_known
from labtrace.findings.difference import changes

TITLE = "V. La, S. Ellay, I. Rathbun: Cycling Faster Through CycleGAN, 2025"
REPOSITORY = "https://github.com/Vincent-La/CMSC828G_Project"
COMMIT = "eedb87038a2ffcd32e2a5c8e4c9bd2fdd238724b"
STEPS = 20  # that each table adds up
# Tables: generator, batch size, number of side streams.
PROFILES = {
    "resnet_b1_baseline": ("resnet_9blocks", 1, 0),
    "resnet_b16_baseline": ("resnet_9blocks", 16, 0),
    "resnet_b16_streams": ("resnet_9blocks", 16, 2),
    "resnet_b16_streams_again": ("resnet_9blocks", 16, 2),
    "said_unet_b16_streams": ("resnet_9blocks", 16, 2),  # it printed "unet_256", and ran the ResNet
    "unet_b12_streams": ("unet_256", 12, 2),
    "unet_b16_baseline": ("unet_256", 16, 0),
    "unet_b16_streams": ("unet_256", 16, 2),
    "unet_b20_baseline": ("unet_256", 20, 0),
}
# Table 1 of the course paper, "forward pass" in ms, on one stream and on two: batch 16.
TABLE_1 = {"resnet_9blocks": (734.42, 809.28), "unet_256": (150.90, 175.50)}
# What the same log as "resnet_b1_baseline" prints for steps that were not recorded: eight of ten are within 0.088 and
# 0.092 s. The program reads the losses before the clock, so the GPU is done.
UNRECORDED_MS = 88.0
# At the peak of a step of ResNet-9, batch 16, in GB, read off the memory timelines in the same repository
# (timeline.html and dist_timeline_largebatch.html): of the tensors, what the allocator gave out, and what it held.
MEMORY_GB = {"tensors": 36.2, "allocated": 39.5, "reserved": 40.7}


def paper_profile(name: str) -> pandas.DataFrame:
    """A table of PyTorch's profiler from the course paper, recorded by its authors on an A100. data/paper describes it.

    Args:
        name: one of `PROFILES`, for example "resnet_b16_streams".

    Returns:
        A row for each printed name. The profiler cut names to 55 characters, so several kernels can have the same one.

        | column | unit | meaning |
        |---|---|---|
        | name | | an operator, a kernel, a call of CUDA, or a range |
        | calls | | in all 20 steps |
        | self_cuda_us | us | on the GPU, in all 20 steps, without the operators that it called |
        | cuda_total_us | us | with the operators that it called |
        | self_cpu_us, cpu_total_us | us | the same on the host |

        ``attrs["stamp"]`` has the source, the device, the settings, ``steps`` and ``gpu_us``, the sum over all kernels.

    Raises:
        LabkitError: the name is unknown, or data/paper is not here.
    """
    check_known("name", name, PROFILES)
    rows = pandas.read_csv(shipped(f"paper/{name}.csv")[0])
    total, table = rows.iloc[0], rows.iloc[1:].reset_index(drop=True)
    generator, batch_size, streams = PROFILES[name]
    settings = {"generator": generator, "batch_size": batch_size, "size": 256, "streams": streams, "tf32": "default"}
    stamp = {"recorded by others": TITLE, "source": REPOSITORY, "commit": COMMIT, "device": "NVIDIA A100"}
    table.attrs["stamp"] = stamp | settings | {"steps": STEPS, "gpu_us": float(total["self_cuda_us"])}
    return table


def paper_diff(before: str, after: str) -> pandas.DataFrame:
    """Two tables as `labkit.Trace.diff` shows two traces: kernels by the printed part of their names, a step.

    A table has 100 names only, so "appeared" and "vanished" also mean: not among those 100.
    """
    return changes(*(_kernels(paper_profile(name)) for name in (before, after)))


def _kernels(profile: pandas.DataFrame) -> pandas.DataFrame:
    of_host = (profile["self_cpu_us"] > 0) | profile["name"].str.contains("forward|ProfilerStep")
    table = profile[(profile["self_cuda_us"] > 0) & ~of_host].groupby("name")
    return table.agg(count=("calls", "sum"), us=("self_cuda_us", "sum")) / STEPS
