"""One rank's events, joined: each kernel with the call that launched it, and with the range and step of that call."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas
from numpy.typing import ArrayLike

from labtrace.dialects import (
    CALLS,
    COMMUNICATION,
    COPIES,
    GPU_WORK,
    LAUNCHES,
    ON_HOST,
    OPERATORS,
    PYTORCHS_RANGES,
    RANGES,
    USERS_RANGES,
    matching,
)
from labtrace.intervals import Nesting, Union
from labtrace.ranges import RANGE
from labtrace.reading import Recording, TraceError, entry

COUNTERS = "cuda_profiler_range"
SYNCS = "cuda_sync"  # events of synchronisation, if `enable_cuda_sync_events` was set in recording
NOWHERE = "(none)"  # in tables, where there is no operator or range


class Rank:
    """The events of one rank, as the tables need them. All times are in microseconds since its first event.

    Attributes:
        recording: the file and its events.
        operators: host events: operators and calls of the CUDA runtime or driver.
        ranges: the ranges that labkit (without "labkit: ") and the user marked on the host. Where labkit did not mark
            the step, also the ranges that PyTorch marks (DataLoader, optimiser, collectives).
        steps: the recorded steps on the host (ProfilerStep), their number in the column `step`. Unlike in HTA, the
            last step counts.
        loading: when the host was loading data, by labkit's range or the DataLoader's, as a `Union`.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        events = recording.events
        marks = events[events["category"].isin([OPERATORS, RANGES])]
        a_step = matching(marks["name"], r"^ProfilerStep\s*#\s*\d{1,18}(?!\d)")
        self.steps = marks[a_step].reset_index(drop=True)
        self.steps["step"] = self.steps["name"].str.extract(r"(\d+)", expand=False).astype("int64")
        labkits, pytorchs = matching(marks["name"], f"^{RANGE}"), matching(marks["name"], f"^(?:{PYTORCHS_RANGES})")
        other = (marks["category"] == RANGES) | pytorchs | matching(marks["name"], f"^{USERS_RANGES}")
        if labkits.any():
            other &= ~pytorchs
        on_host = events["category"].isin([OPERATORS, *CALLS])
        on_host[marks.index[a_step | labkits | pytorchs | other]] = False  # in the first versions marks were operators
        self.operators = events[on_host].reset_index(drop=True)
        self.ranges = marks[(labkits | other) & ~a_step].reset_index(drop=True)
        self.ranges["name"] = self.ranges["name"].str.removeprefix(RANGE)
        loading = marks[matching(marks["name"], rf"^(?:{RANGE}data$|enumerate\(DataLoader\))")]
        self.loading = Union(loading["begin"], loading["end"])

    @cached_property
    def nested_operators(self) -> Nested:
        """`operators`, to ask for the innermost at a time."""
        return Nested(self.operators)

    @cached_property
    def nested_ranges(self) -> Nested:
        """`ranges`, to ask for the innermost at a time."""
        return Nested(self.ranges)

    @cached_property
    def kernels(self) -> pandas.DataFrame:
        """Kernels and memory operations, in the order they began.

        | column | unit | meaning |
        |---|---|---|
        | name, stream | | |
        | kind | | compute, memory or communication |
        | begin, end, duration | microseconds | |
        | correlation, external | | |
        | call_begin, call_duration | microseconds | of the call that launched it |
        | delay | microseconds | from the end of the call to the begin of the kernel, at least 0 |
        | sharing | | how many that call launched, more than 1 in a CUDA graph |
        | call | | the place of that call in `operators`, or -1 |
        | step | | -1 outside of all steps |
        | range | | the place in `ranges` of the innermost range around the call, or -1 |

        Where the trace holds no call that launched a kernel, the columns from call_begin to sharing are NaN.

        Raises:
            TraceError: the trace holds no GPU activity, or the activity of several GPUs.
        """
        self._check_one_gpu()
        kernels = self.gpu_work
        kind = kernels["category"].map(GPU_WORK)
        kind[matching(kernels["name"], COPIES)] = "memory"
        kind[(kind == "compute") & matching(kernels["name"], COMMUNICATION)] = "communication"
        kernels = kernels.assign(kind=kind)
        kernels["delay"] = (kernels["begin"] - kernels["call_begin"] - kernels["call_duration"]).clip(lower=0)
        kernels["sharing"] = kernels.groupby("correlation")["name"].transform("size").where(kernels["delay"].notna())
        step = innermost(self.steps, kernels["call_begin"])
        kernels["step"] = np.append(self.steps["step"].to_numpy(), -1)[step]
        kernels["range"] = self.nested_ranges.at(kernels["call_begin"])
        return kernels.drop(columns=["category", "pid", "tid"])

    @cached_property
    def gpu_work(self) -> pandas.DataFrame:
        """The events on the GPU, in the order they began, with call, call_begin and call_duration as in `kernels`."""
        events, calls = self.recording.events, self.calls
        work = events[events["category"].isin(GPU_WORK)].sort_values("begin", kind="stable", ignore_index=True)
        launching = work["correlation"].map(calls.set_index("correlation")["call"])
        work["call"] = launching.fillna(-1).astype(int)
        for column in ("begin", "duration"):
            work[f"call_{column}"] = np.append(self.operators[column].to_numpy(), np.nan)[work["call"]]
        return work

    @cached_property
    def calls(self) -> pandas.DataFrame:
        """The calls with a correlation, one of each, in the order they began. `call` is their place in `operators`."""
        known = self.operators["category"].isin(CALLS) & (self.operators["correlation"] > 0)
        calls = self.operators[known].rename_axis("call").reset_index().sort_values("begin", kind="stable")
        return calls.drop_duplicates("correlation")

    def within(self, first: int, last: int) -> Rank:
        """A rank with the host events that began in the steps from `first` to `last`, and the kernels launched there.

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
        launching = self.calls["correlation"][innermost(steps, self.calls["begin"]) >= 0]
        on_host = events["category"].isin(ON_HOST) & (innermost(steps, events["begin"]) >= 0)
        on_gpu = events["category"].isin(GPU_WORK)
        launched = on_gpu & events["correlation"].isin(launching)
        if on_gpu.any() and not launched.any():
            raise TraceError(
                f"{file}: no kernel was launched in the steps {first} to {last}, or its launch is not in the trace. "
                f"Choose other steps among {', '.join(map(str, numbers))}, or use the whole trace."
            )
        waits = (events["category"] == SYNCS) & events["correlation"].isin(launching)
        return Rank(replace(self.recording, events=events[on_host | launched | waits]))

    @cached_property
    def captures(self) -> Union:
        """When CUDA graphs were captured. Launches in these times run nothing."""
        calls = self.operators
        begins = calls["begin"][matching(calls["name"], "BeginCapture")].sort_values()
        ends = np.append(np.sort(calls["end"][matching(calls["name"], "EndCapture")]), calls["end"].max())
        return Union(begins, ends[np.searchsorted(ends[:-1], begins)])

    @property
    def world_size(self) -> int:
        """The number of ranks in the recorded run, as the trace says, or 1 if it does not."""
        size = entry(self.recording.meta, "distributedInfo").get("world_size")
        return size if isinstance(size, int) else 1

    @property
    def single_gpu(self) -> bool:
        """Whether it holds the work of exactly one GPU, as the tables of a GPU need."""
        return self.gpu_work["pid"].nunique() == 1

    @property
    def has_gpu(self) -> bool:
        """Whether it holds the work of at least one GPU."""
        return bool(self.recording.events["category"].isin(GPU_WORK).any())

    @property
    def on_cpu(self) -> bool:
        """Whether it was recorded without a GPU: with none of its work, and none of its launches."""
        return not self.has_gpu and not matching(self.operators["name"], LAUNCHES).any()

    def _check_one_gpu(self) -> None:
        file, kernels = self.recording.file, self.gpu_work
        counted = int((self.recording.events["category"] == COUNTERS).sum())
        if kernels.empty and counted:
            raise TraceError(
                f"{file}: no kernels, but {counted} ranges of hardware counters (cuda_profiler_range). In that mode "
                "the profiler records no timeline. Record once more without counters (profiler_metrics)."
            )
        if kernels.empty and matching(self.operators["name"], LAUNCHES).any():
            raise TraceError(
                f"{file}: the host launched kernels, but none is in the trace: the profiler could not record the GPU. "
                "CUPTI may lack the permission to read its counters: ask the administrator, and record again."
            )
        if kernels.empty:
            raise TraceError(
                f"{file}: no GPU activity in this trace: it was recorded on a CPU, or on a device that is no GPU. The "
                "trace of a GPU also says when each kernel ran, on which stream, and why the GPU was idle. Record on a "
                "GPU, or open such a trace. operators() and ranges() work on this one, too."
            )
        if kernels["pid"].nunique() > 1:  # a GPU's events carry its number as their process
            raise TraceError(
                f"{file}: kernels of {kernels['pid'].nunique()} GPUs in one trace, but the tables are for one GPU. "
                "Record each GPU in a separate process."
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


class Nested:
    """Host events, which nest in each thread: finds the innermost at a time.

    Among several threads the event that began last counts: in the backward pass the autograd thread works while the
    main thread waits.

    Attributes:
        threads: of each thread the places of its events, and their `Nesting`.
    """

    def __init__(self, events: pandas.DataFrame) -> None:
        self._names, self._begin = events["name"].to_numpy(dtype=object), events["begin"].to_numpy()
        groups, end = events.groupby(["pid", "tid"], sort=False).indices, events["end"].to_numpy()
        self.threads = [(rows, Nesting(self._begin[rows], end[rows])) for rows in groups.values()]

    def at(self, times: ArrayLike) -> np.ndarray:
        """The place of the innermost event at each time, -1 for none."""
        times = np.asarray(times, dtype=float)
        found, begun = np.full(len(times), -1), np.full(len(times), -np.inf)
        for rows, nesting in self.threads:
            place = nesting.at(times)
            here = np.where(place >= 0, rows[place], -1)
            later = (here >= 0) & (self._begin[here] > begun)
            found, begun = np.where(later, here, found), np.where(later, self._begin[here], begun)
        return found

    def names_at(self, times: ArrayLike, nowhere: str = NOWHERE) -> np.ndarray:
        """The name of the innermost event at each time, `nowhere` where there is none."""
        return np.append(self._names, nowhere)[self.at(times)]


def innermost(events: pandas.DataFrame, times: ArrayLike) -> np.ndarray:
    """The place of the innermost host event at each time, -1 for none."""
    return Nested(events).at(times)
