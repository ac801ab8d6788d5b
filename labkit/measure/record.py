"""A training step recorded as a Kineto trace, for HTA and for Perfetto, with its stamp inside."""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from labkit import ranks
from labkit.devices import cudnn_benchmark
from labkit.errors import LabkitError
from labkit.measure.timing import synchronise
from labkit.models.step import RANGE, Step
from labkit.stamp import stamp
from labkit.variants.graph import ANNOTATIONS
from labtrace.errors import check_at_least
from labtrace.files import atomic_write, check_writable

Pair = tuple[Tensor, Tensor]  # real_a, real_b: a batch of either domain


def noise(
    batch_size: int,
    size: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    channels: Sequence[int] = (3, 3),
) -> Pair:
    """Random pictures in [-1, 1], (B, C, size, size) for either domain: a step takes as long as on photographs."""
    random = torch.Generator(device).manual_seed(seed)
    real_a, real_b = (
        torch.rand((batch_size, n, size, size), generator=random, device=device, dtype=dtype) * 2 - 1 for n in channels
    )
    return real_a, real_b


def record(step: Step, batch: Pair | Iterator[Pair], path: Path | str, steps: int = 20, shapes: bool = False) -> Path:
    """Records `steps` steps as a trace, and restores the step's state afterwards, bit for bit.

    cuDNN's benchmark mode is on meanwhile, as in `labkit.fit`.

    The file is written by `torch.profiler`, for Holistic Trace Analysis and ui.perfetto.dev. Under the key "labkit"
    it holds the stamp. Ranges named "labkit: ..." mark data, forward, backward and optimizer. In a CUDA graph of
    `labkit.variants.graph` annotations of the kernels do, where PyTorch can give them.

    Args:
        step: from `labkit.make_step`.
        batch: (real_a, real_b), used for every step, or an iterator over such pairs. The wait for them is recorded.
        path: a file ending in .json or, compressed, in .json.gz. Each of several ranks writes its own file, beside it:
            trace.rank1.json.gz. `labkit.Trace` reads a folder of them as one run.
        steps: how many to record, after three warm-up steps. HTA leaves out the last.
        shapes: whether to record the dimensions and types of operators' inputs, which `labkit.Trace.achieved` needs.
            The host then needs about a tenth longer, so the idle times of a GPU that waits for it are too long.

    Raises:
        LabkitError: there is nothing to record, the device is neither a CPU nor a CUDA GPU, or the file cannot be
            written.
    """
    path = Path(path)
    check_writable(path)
    return write_profile(profiled(step, batch, steps, shapes), path)


@cudnn_benchmark()
def profiled(step: Step, batch: Pair | Iterator[Pair], steps: int = 20, shapes: bool = False) -> profile:
    """The profiler after `steps` steps, for its `key_averages()`. The arguments are those of `record`."""
    check_at_least(1, steps=steps)
    stream = itertools.repeat(batch) if isinstance(batch, tuple) else batch
    if not isinstance(step, Step):
        raise LabkitError(f"step is a {type(step).__name__}: give one from labkit.make_step. Others: docs/traces.md.")
    device = next(step.model.parameters()).device.type
    if device not in ("cpu", "cuda"):
        raise LabkitError(f"device={device!r}: only work on a CPU or a CUDA GPU is recorded. Use one of these.")
    on_gpu = device == "cuda"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    recording = profiler_of(activities, schedule=schedule(wait=2, warmup=1, active=steps), record_shapes=shapes)
    with preserving_state(step), recording as profiler:
        for number in range(3 + steps):
            if number == 3:  # the profiler takes metadata while it records
                profiler.add_metadata_json("labkit", json.dumps(stamp() | {"steps": steps}))
            with record_function(RANGE + "data"):
                pair = next(stream, None)
            if pair is None:
                raise LabkitError(f"batch: {3 + steps} are needed, of which three warm up, and there were {number}.")
            step(*pair)
            synchronise()  # so that a step's kernels lie inside its step
            profiler.step()
        if ANNOTATIONS and (names := dict(ANNOTATIONS.get_kernel_annotations())):
            # A graph goes, and its kernels' names with it, when the state is restored.
            profiler.export_chrome_trace = partial(profiler.export_chrome_trace, cuda_graph_annotations=names)
    return profiler


def host_profiler() -> profile:
    """`torch.profiler.profile` for the calls of the host, without a complaint where there is no GPU."""
    return profiler_of([ProfilerActivity.CPU])


def profiler_of(activities: list[ProfilerActivity], **options: Any) -> profile:
    """A profiler for one recording; `options` are those of `torch.profiler.profile`."""
    if not torch.cuda.is_available():
        # The profiler asks for GPUs even if it records only the host, and prints that there is none. It reads this
        # variable once in a process.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    # acc_events: PyTorch 2.11 warns without it that a second recording would replace the first one.
    return profile(activities=activities, acc_events=True, **options)


@contextmanager
def preserving_state(step: Step) -> Iterator[None]:
    """Whatever happens inside, afterwards the step has its networks, optimisers, pools and random numbers back."""
    found = copy.deepcopy(step.state_dict())
    weight = next(step.model.parameters())
    with torch.random.fork_rng([weight.device] if weight.is_cuda else []):
        try:
            yield
        finally:
            step.load_state_dict(found)


def write_profile(profiler: profile, path: Path) -> Path:
    """Writes a profiler's trace. Each of several ranks writes under its own name.

    Raises:
        LabkitError: it cannot be written.
    """
    if ranks.count() > 1:
        stem, dot, suffix = path.name.partition(".json")
        path = path.with_name(f"{stem}.rank{ranks.number()}{dot}{suffix}")
    with atomic_write(path) as part:
        profiler.export_chrome_trace(str(part))
    return path
