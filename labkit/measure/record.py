"""One step -> one Kineto trace, for HTA and for Perfetto, with what it was recorded on inside it."""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from labkit.devices import LESS_MEMORY, OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.files import atomic_write, check_folder
from labkit.measure import RANGE
from labkit.stamp import stamp
from labkit.step import Step

if TYPE_CHECKING:
    import pandas

Batch = tuple[Tensor, Tensor]


def record(step: Step, batch: Batch | Iterator[Batch], path: Path | str, steps: int = 20) -> Path:
    """Records `steps` steps into a trace, and leaves the step as it was found, bit for bit.

    The file is what `torch.profiler` writes, for Holistic Trace Analysis and ui.perfetto.dev; under the key "labkit"
    it holds the stamp. Ranges named "labkit: ..." mark data, forward, backward and optimizer.

    Args:
        step: from `labkit.make_step`.
        batch: (real_a, real_b), used over and over; or an iterator over such pairs, whose waiting is recorded too.
        path: a file ending in .json or, compressed, in .json.gz.
        steps: how many to record, after three that warm up. HTA leaves out the last.

    Raises:
        LabkitError: there is nothing to record, the batch does not fit into memory, or the file cannot be written.
    """
    path = Path(path)
    check_writable(path)
    return export(profiled(step, batch, steps), path)


def profiled(step: Step, batch: Batch | Iterator[Batch], steps: int = 20) -> profile:
    """The profiler after `steps` steps, for its tables; see `record` for the arguments."""
    if steps < 1:
        raise LabkitError(f"steps={steps}: at least one step is needed to record anything.")
    stream = itertools.repeat(batch) if isinstance(batch, tuple) else batch
    on_gpu = next(step.model.parameters()).is_cuda
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    if not on_gpu:
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or it complains on stderr, each time, that there is no GPU
    with as_found(step), profile(activities=activities, schedule=schedule(wait=2, warmup=1, active=steps)) as profiler:
        for number in range(3 + steps):
            if number == 3:  # the profiler takes metadata while it records
                profiler.add_metadata_json("labkit", json.dumps(stamp() | {"steps": steps}))
            with record_function(RANGE + "data"):
                real_a, real_b = next(stream, (None, None))
            if real_a is None:
                raise LabkitError(f"batch: {3 + steps} are needed, of which three warm up, and there were {number}.")
            try:
                step(real_a, real_b)
            except OUT_OF_MEMORY as error:
                raise LabkitError(
                    f"out of memory with batches of {len(real_a)} ({str(error).partition('. ')[0]}). {LESS_MEMORY}"
                ) from error
            if on_gpu:
                torch.cuda.synchronize()  # so that a step's kernels lie inside its step
            profiler.step()
    return profiler


@contextmanager
def as_found(step: Step) -> Iterator[None]:
    """Whatever happens to the step inside, afterwards its networks, optimisers, pools and random numbers are back."""
    found = copy.deepcopy(step.state_dict())
    devices = [next(step.model.parameters()).device] if next(step.model.parameters()).is_cuda else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            step.load_state_dict(found)


def export(profiler: profile, path: Path) -> Path:
    """Writes a profiler's trace.

    Raises:
        LabkitError: it cannot be written.
    """
    with atomic_write(path) as part:
        profiler.export_chrome_trace(str(part))
    return path


def check_writable(path: Path) -> None:
    """Raises `LabkitError` if a trace could not be written to `path`: better before recording than after."""
    if not path.name.endswith((".json", ".json.gz")):
        raise LabkitError(f"{path}: a trace's name ends in .json or .json.gz.")
    check_folder(path.parent)


def operators(profiler: profile) -> pandas.DataFrame:
    """Where the time went by operator, one a row, most expensive first.

    Columns: calls; self_cpu_us and self_gpu_us, time in it but not in operators it called, summed over the recorded
    steps, in microseconds. labkit's ranges are left out: see `range_times`.
    """
    import pandas

    rows = {
        average.key: (average.count, average.self_cpu_time_total, average.self_device_time_total)
        for average in profiler.key_averages()
        if not average.key.startswith((RANGE, "ProfilerStep"))
    }
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["calls", "self_cpu_us", "self_gpu_us"])
    return table.sort_values(["self_gpu_us", "self_cpu_us"], ascending=False)


def range_events(profiler: profile) -> list[tuple[str, float, float]]:
    """labkit's ranges in the order they began: name, begin and duration on the host, in microseconds."""
    times = [(event.name, event.time_range) for event in profiler.events() if event.name.startswith(RANGE)]
    return sorted(
        ((name.removeprefix(RANGE), time.start, time.elapsed_us()) for name, time in times), key=lambda event: event[1]
    )


def range_times(events: list[tuple[str, float, float]], steps: int) -> dict[str, float]:
    """Milliseconds of host time that one of `steps` steps spent in each range, on average, in the order of the step.

    On a GPU that is the time to launch the range's work, not to do it. `events` as `range_events` gives them.
    """
    total: dict[str, float] = {}
    for name, _, microseconds in events:
        total[name] = total.get(name, 0.0) + microseconds
    return {name: microseconds / 1e3 / steps for name, microseconds in total.items()}
