"""One rank's events, joined: each kernel with the call that launched it, and with the range and step of that call."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas

from labkit.step import RANGE
from labkit.traces.intervals import Nesting, Union
from labkit.traces.reading import GPU_WORK, Recording, TraceError

CALLS = ("cuda_runtime", "cuda_driver")  # of the driver: Triton's launches
# In the names of kernels that send data to other devices: as in HTA; AMD's; and those that PyTorch and vLLM have of
# their own for GPUs with direct links.
COMMUNICATION = "^nccl|^hccl|ncclKernel|^rccl|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce"
ON_HOST = ("cpu_op", "user_annotation", *CALLS)
NOWHERE = "(none)"  # stands in tables where there is no operator or range


class Rank:
    """The events of one rank, as the tables need them. All times are in microseconds since its first event.

    Attributes:
        recording: the file and its events.
        operators: host events: operators and calls of the CUDA runtime or driver.
        ranges: labkit's ranges on the host, their names without "labkit: ".
        steps: the recorded steps on the host (ProfilerStep), their number in the column `step`. Unlike in HTA, the
            last step counts.
        loading: when the host was loading data, by labkit's range or the DataLoader's, as a `Union`.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        events, names = recording.events, recording.events["name"].astype(str)
        on_host = events["category"].isin(["user_annotation", "cpu_op"])
        self.operators = events[events["category"].isin(["cpu_op", *CALLS])].reset_index(drop=True)
        self.ranges = events[on_host & names.str.startswith(RANGE)].reset_index(drop=True)
        self.ranges["name"] = self.ranges["name"].str.removeprefix(RANGE)
        self.steps = events[on_host & names.str.match(r"ProfilerStep\s*#\s*\d+")].reset_index(drop=True)
        self.steps["step"] = self.steps["name"].str.extract(r"(\d+)", expand=False).astype(int)
        loading = events[on_host & ((names == RANGE + "data") | names.str.startswith("enumerate(DataLoader)"))]
        self.loading = Union(loading["begin"], loading["end"])

    @cached_property
    def kernels(self) -> pandas.DataFrame:
        """Kernels and memory operations, in the order they began.

        Columns: name, kind (compute, memory, communication), stream, begin, end, duration; correlation; and, NaN
        where the trace holds no call that launched it: call_begin, call_duration, delay (from the end of the call to
        the begin of the kernel, at least 0), sharing (how many that call launched, more than 1 in a CUDA graph),
        step (-1 outside of all steps), range (the place in `ranges` of the innermost range round the call, or -1).

        Raises:
            TraceError: the trace holds no GPU activity, or the activity of several GPUs.
        """
        events = self.recording.events
        kernels = events[events["category"].isin(GPU_WORK)]
        self._check_one_gpu(kernels)
        kind = kernels["category"].map(GPU_WORK)
        kind[(kind == "compute") & kernels["name"].str.contains(COMMUNICATION)] = "communication"
        kernels = kernels.assign(kind=kind).sort_values("begin", kind="stable", ignore_index=True)
        kernels = kernels.join(self._calls.add_prefix("call_"), on="correlation")
        kernels["delay"] = (kernels["begin"] - kernels["call_begin"] - kernels["call_duration"]).clip(lower=0)
        kernels["sharing"] = kernels.groupby("correlation")["name"].transform("size").where(kernels["delay"].notna())
        step = innermost(self.steps, kernels["call_begin"])
        kernels["step"] = np.append(self.steps["step"].to_numpy(), -1)[step]
        kernels["range"] = innermost(self.ranges, kernels["call_begin"])
        return kernels.drop(columns=["category", "pid", "tid"])

    @cached_property
    def _calls(self) -> pandas.DataFrame:
        """The begin and duration of the CUDA call of each correlation."""
        calls = self.operators[self.operators["category"].isin(CALLS) & (self.operators["correlation"] > 0)]
        return calls.drop_duplicates("correlation").set_index("correlation")[["begin", "duration"]]

    def within(self, first: int, last: int) -> Rank:
        """The host events that began in the steps from `first` to `last`, and the kernels launched in them.

        Raises:
            TraceError: a step is not there, or the trace holds kernels but none that was launched in these steps.
        """
        file, events = self.recording.file, self.recording.events
        numbers = self.steps["step"].tolist()
        if not numbers:
            raise TraceError(
                f"{file}: no steps in this trace: no range is named ProfilerStep. Record with labkit.record, or call "
                "the profiler's step() after each step."
            )
        for step in (first, last):
            if step not in numbers:
                raise TraceError(
                    f"{file}: there is no step {step} in this trace. Choose among {', '.join(map(str, numbers))}."
                )
        steps = self.steps[self.steps["step"].between(first, last)]
        launching = self._calls.index[innermost(steps, self._calls["begin"]) >= 0]
        on_host = events["category"].isin(ON_HOST) & (innermost(steps, events["begin"]) >= 0)
        on_gpu = events["category"].isin(GPU_WORK)
        launched = on_gpu & events["correlation"].isin(launching)
        if on_gpu.any() and not launched.any():
            raise TraceError(
                f"{file}: no kernel was launched in the steps {first} to {last}, or its launch is not in the trace. "
                f"Choose other steps among {', '.join(map(str, numbers))}, or use the whole trace."
            )
        return Rank(replace(self.recording, events=events[on_host | launched]))

    def _check_one_gpu(self, kernels: pandas.DataFrame) -> None:
        file = self.recording.file
        if kernels.empty and self.operators["name"].str.contains("LaunchKernel|GraphLaunch").any():
            raise TraceError(
                f"{file}: the host launched kernels, but none is in the trace: the profiler could not record the GPU. "
                "Its counters may be closed to you (CUPTI needs permission): ask the administrator, and record again."
            )
        if kernels.empty:
            raise TraceError(
                f"{file}: no GPU activity in this trace: it was recorded on a CPU. A GPU trace also says when each "
                "kernel ran, on which stream, and why the GPU was idle. Record on a GPU, or open the trace of a GPU. "
                "operators() and ranges() work on this trace."
            )
        if kernels["pid"].nunique() > 1:  # a GPU's events carry its number as their process
            raise TraceError(
                f"{file}: kernels of {kernels['pid'].nunique()} GPUs in one trace, but the tables are for one GPU. "
                "Record each GPU in a process of its own."
            )

    @cached_property
    def busy(self) -> Union:
        """When at least one stream was busy."""
        return Union(self.kernels["begin"], self.kernels["end"])

    @property
    def start(self) -> float:
        """When the first GPU activity began."""
        return float(self.kernels["begin"].min())

    @property
    def stop(self) -> float:
        """When the last GPU activity ended."""
        return float(self.kernels["end"].max())

    def streams(self, kernels: pandas.DataFrame) -> dict[int, Union]:
        """When each stream was busy with these kernels."""
        return {stream: Union(group["begin"], group["end"]) for stream, group in kernels.groupby("stream")}


def innermost(events: pandas.DataFrame, times: pandas.Series | np.ndarray) -> np.ndarray:
    """The place of the innermost host event at each time, -1 for none.

    The events of each thread are nested. Among several threads the event that began last counts: in the backward pass
    the autograd thread works while the main thread waits.
    """
    times = np.asarray(times, dtype=float)
    found, begun = np.full(len(times), -1), np.full(len(times), -np.inf)
    begin, end = events["begin"].to_numpy(), events["end"].to_numpy()
    for rows in events.groupby(["pid", "tid"], sort=False).indices.values():
        place = Nesting(begin[rows], end[rows]).at(times)
        here = np.where(place >= 0, rows[place], -1)
        later = (here >= 0) & (begin[here] > begun)
        found, begun = np.where(later, here, found), np.where(later, begin[here], begun)
    return found


def names_at(events: pandas.DataFrame, times: pandas.Series | np.ndarray) -> np.ndarray:
    """The name of the innermost host event at each time, "(none)" where there is none."""
    return np.append(events["name"].to_numpy(dtype=object), NOWHERE)[innermost(events, times)]
