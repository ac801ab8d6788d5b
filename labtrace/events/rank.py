"""One rank's events, joined: each kernel with the call that launched it, and with the range and step of that call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.clocks import DOUBTFUL, cut_short, impossible
from labtrace.events.dialects import (
    APPENDED_LAUNCHES,
    CALLS,
    COMMUNICATION,
    COPIES,
    GPU_WORK,
    GRAPH_LAUNCHES,
    LAUNCHING_CALLS,
    ON_HOST,
    OPERATORS,
    OTHER_CATEGORIES,
    PYTORCHS_RANGES,
    RANGES,
    SYNCHRONISE,
    USERS_RANGES,
    matching,
)
from labtrace.events.gaps import find_gaps
from labtrace.events.graphs import ranges_in_graphs
from labtrace.events.intervals import Nested, Union, innermost
from labtrace.events.reading import Recording, entry, number
from labtrace.ranges import RANGE


class Rank:
    """The events of one rank, as the tables need them. All times are in microseconds since its first event.

    Attributes:
        recording: the file and its events.
        operators: host events: operators and calls of the CUDA runtime or driver.
        steps: the recorded steps on the host (ProfilerStep), their number in the column `step`. Unlike in HTA, the
            last step counts.
        loading: when the host was loading data, by labkit's range or the DataLoader's, as a `Union`.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        events = recording.events
        marks = events[events["category"].isin([OPERATORS, RANGES])]
        a_step = matching(marks["name"], r"^ProfilerStep\s*#\s*\d{1,18}(?!\d)")
        whole = (recording.stamp or {}).get("whole_steps")  # of `labtrace.watch`, for a recording that ended early
        self._marked = _without_overlaps(marks[a_step])
        self.steps = self._marked.head(whole).reset_index(drop=True)
        self.steps["step"] = self.steps["name"].str.extract(r"(\d+)", expand=False).astype("int64")
        labkits, pytorchs = matching(marks["name"], f"^{RANGE}"), matching(marks["name"], f"^(?:{PYTORCHS_RANGES})")
        other = (marks["category"] == RANGES) | pytorchs | matching(marks["name"], f"^{USERS_RANGES}")
        if labkits.any():
            other &= ~pytorchs
        on_host = events["category"].isin([OPERATORS, *CALLS])
        on_host[marks.index[a_step | labkits | pytorchs | other]] = False  # in the first versions marks were operators
        self.operators = events[on_host].reset_index(drop=True)
        self._ranges = marks[(labkits | other) & ~a_step].reset_index(drop=True)
        self._ranges["name"] = self._ranges["name"].str.removeprefix(RANGE)
        loading = marks[matching(marks["name"], rf"^(?:{RANGE}data$|enumerate\(DataLoader\))")]
        self.loading = Union(loading["begin"], loading["end"])

    @cached_property
    def ranges(self) -> pandas.DataFrame:
        """The ranges that labkit (without "labkit: ") and the user marked on the host, then those in CUDA graphs.

        Where labkit did not mark the step, also the ranges that PyTorch marks (DataLoader, optimiser, collectives).
        """
        more = self._in_graphs[0]
        return pandas.concat([self._ranges, more], ignore_index=True) if len(more) else self._ranges

    @cached_property
    def _in_graphs(self) -> tuple[pandas.DataFrame, np.ndarray]:
        return ranges_in_graphs(self.recording, self.gpu_work)

    @cached_property
    def nested_operators(self) -> Nested:
        """`operators`, to ask for the innermost at a time."""
        return Nested(self.operators)

    @cached_property
    def nested_ranges(self) -> Nested:
        """`ranges`, to ask for the innermost at a time. They can cross: their begin and end are calls of the user's."""
        return Nested(self.ranges, crossing=True)

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

        Where the trace holds no call that launched a kernel, the columns from call_begin to sharing are NaN. They all
        are if the clocks of host and GPU differ: then nobody knows how late a kernel began.

        Raises:
            TraceError: the trace holds no GPU activity.
        """
        self.check_gpu()
        kernels = self.gpu_work
        kind = kernels["category"].map(GPU_WORK)
        kind[matching(kernels["name"], COPIES)] = "memory"
        kind[(kind == "compute") & matching(kernels["name"], COMMUNICATION)] = "communication"
        kernels = kernels.assign(kind=kind)
        kernels["delay"] = (kernels["begin"] - kernels["call_begin"] - kernels["call_duration"]).clip(lower=0)
        kernels["sharing"] = kernels.groupby("correlation")["name"].transform("size").where(kernels["delay"].notna())
        step = innermost(self.steps, kernels["call_begin"])
        kernels["step"] = np.append(self.steps["step"].to_numpy(), -1)[step]
        around, place = self.nested_ranges.at(kernels["call_begin"]), self._in_graphs[1]
        kernels["range"] = np.where(place >= 0, place + len(self._ranges), around)
        if any(share > DOUBTFUL for _, share in self.impossible_times.values()):
            kernels[["call_begin", "call_duration", "delay", "sharing"]] = np.nan
        return kernels.drop(columns=["category", "pid", "tid", "cut_us", "note", "twin"], errors="ignore")

    @cached_property
    def gaps(self) -> pandas.DataFrame:
        """The times in which no kernel ran, with their causes: `labtrace.events.gaps.find_gaps` of `kernels`."""
        return find_gaps(self.kernels)

    @cached_property
    def gpu_work(self) -> pandas.DataFrame:
        """The events on the GPU, in the order they began, with call, call_begin and call_duration as in `kernels`.

        `cut_us` is what was cut off a duration that cannot be right.
        """
        events, calls = self.recording.events, self.calls
        work = events[events["category"].isin(GPU_WORK)].sort_values("begin", kind="stable", ignore_index=True)
        work = cut_short(work)
        launching = work["correlation"].map(calls.set_index("correlation")["call"])
        work["call"] = launching.fillna(-1).astype(int)
        for column in ("begin", "duration"):
            work[f"call_{column}"] = np.append(self.operators[column].to_numpy(), np.nan)[work["call"]]
        return work

    @cached_property
    def impossible_times(self) -> dict[str, tuple[pandas.Series, float]]:
        """The kernels whose times do not fit the host's: see `labtrace.events.clocks.impossible`."""
        return impossible(self.gpu_work, self.operators, self.recording.gpus)

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
        events = events.assign(**{name: self._marked[name].combine_first(events[name]) for name in ("end", "duration")})
        there = self.steps["step"].tolist()
        numbers = ", ".join(map(str, there)) or "none: no ProfilerStep, which the profiler's step() marks"
        for step in (first, last):
            if step not in there:
                raise TraceError(f"{file}: there is no step {step} in this trace. Choose among {numbers}.")
        steps = self.steps[self.steps["step"].between(first, last)]
        launching = self.calls["correlation"][innermost(steps, self.calls["begin"]) >= 0]
        on_host = events["category"].isin(ON_HOST) & (innermost(steps, events["begin"]) >= 0)
        on_gpu = events["category"].isin(GPU_WORK)
        launched = on_gpu & events["correlation"].isin(launching)
        if on_gpu.any() and not launched.any():
            raise TraceError(
                f"{file}: no kernel launched in the steps {first} to {last}. Choose others among {numbers}."
            )
        return Rank(replace(self.recording, events=events[on_host | launched]))

    @cached_property
    def launches(self) -> pandas.DataFrame:
        """The `calls` that launch kernels: of Intel's GPUs the driver's, if there are no others."""
        launching = self.calls[matching(self.calls["name"], LAUNCHING_CALLS)]
        return launching if len(launching) else self.calls[matching(self.calls["name"], APPENDED_LAUNCHES)]

    @cached_property
    def graph_launches(self) -> pandas.Series:
        """By the place in `operators`, of each call that launches a CUDA graph the place in `steps`, -1 for none."""
        calls = self.operators[matching(self.operators["name"], GRAPH_LAUNCHES)]
        return pandas.Series(innermost(self.steps, calls["begin"]), calls.index)

    @cached_property
    def synchronisations(self) -> pandas.DataFrame:
        """The `operators` in which the host does nothing but wait for a stream or the device."""
        return self.operators[matching(self.operators["name"], SYNCHRONISE)]

    @cached_property
    def idle(self) -> Union:
        """When no stream was busy, between the first and the last GPU activity."""
        return Union(*self.busy.gaps())

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
        return max(1, number(entry(self.recording.meta, "distributedInfo").get("world_size")))

    @property
    def recorded(self) -> Union:
        """When a whole step was recorded, or a part of one or, if none is marked, from the first event to the last."""
        marked = self.steps if len(self.steps) else self._marked
        if len(marked):
            return Union(marked["begin"], marked["end"])
        events = self.recording.events
        return Union([events["begin"].min()], [events["end"].max()])

    @property
    def has_gpu(self) -> bool:
        """Whether it holds the work of at least one GPU."""
        return bool(self.recording.events["category"].isin(GPU_WORK).any())

    @property
    def on_cpu(self) -> bool:
        """Whether it was recorded without a GPU, or another device."""
        return not self.has_gpu and not self.why_lost

    @cached_property
    def why_lost(self) -> str:
        """Why the work of a GPU or another device is not in the recording though there was one, or ""."""
        if self.has_gpu:
            return ""
        events = self.recording.events["category"]
        if matching(self.operators["name"], f"{LAUNCHING_CALLS}|{APPENDED_LAUNCHES}").any():
            return (
                "the host launched kernels, but none is in the trace: the profiler could not record the GPU. CUPTI "
                "(rocprofiler, PTI) may be missing, or not allowed to read the GPU's counters: ask the administrator."
            )
        strange = events[~events.isin([*GPU_WORK, *ON_HOST, *OTHER_CATEGORIES])].unique().tolist()
        if self.recording.left_out.get("events without a category"):  # of Ascend's profiler
            strange.append("no category")
        if strange:
            return f"events of a device that labtrace does not read ({', '.join(strange)}): use operators(), ranges()."
        return ""

    def check_gpu(self) -> None:
        """Raises `TraceError`, with the reason, if the trace holds no GPU activity."""
        on_cpu = "recorded on a CPU, without a GPU's activity: use summary(), processor(), operators() and ranges()."
        if not self.has_gpu:
            raise TraceError(f"{self.recording.file}: {self.why_lost or on_cpu}")

    def check_launches(self) -> None:
        """Raises `TraceError` if the trace holds no launch of a kernel."""
        if self.kernels["call_begin"].isna().all():
            raise TraceError(
                f"{self.recording.file}: no launch of any kernel, or of another clock (see Trace.audit), so the queue "
                "is not known, and it cannot be replayed. Record the host, too: ProfilerActivity.CPU."
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


def _without_overlaps(steps: pandas.DataFrame) -> pandas.DataFrame:
    """The marks of steps, each of which ends when the next of its thread begins, unless that one ends earlier."""
    by_thread = steps.sort_values("begin", kind="stable").groupby(["pid", "tid"], sort=False)
    following = by_thread[["begin", "end"]].shift(-1).reindex(steps.index)
    within = following["begin"].between(steps["begin"], steps["end"], inclusive="neither")
    crossing = within & (steps["end"] <= following["end"])
    end = steps["end"].mask(crossing, following["begin"])
    return steps.assign(end=end, duration=(end - steps["begin"]).round(3))


def ranks_of(recordings: Mapping[int, Recording]) -> dict[int, Rank]:
    """The ranks of a run. If a process used several GPUs each of them is one, numbered in the order of the processes.

    Raises:
        TraceError: a file holds several GPUs of several processes.
    """
    parts = [part for recording in recordings.values() for part in _by_gpu(recording)]
    numbers = recordings if len(parts) == len(recordings) else range(len(parts))
    return {number: Rank(part) for number, part in zip(numbers, parts, strict=True)}


def _by_gpu(recording: Recording) -> list[Recording]:
    """The recording of each GPU. All have the host's events, but those that launched work elsewhere launch none."""
    events = recording.events
    on_gpu, correlation = events["category"].isin(GPU_WORK), events["correlation"]
    gpus = events["pid"][on_gpu].unique()  # work on a GPU has its number as its process
    if len(gpus) < 2:
        return [recording]
    if events["pid"][events["category"].isin(CALLS)].nunique() > 1:
        raise TraceError(
            f"{recording.file}: several GPUs and processes in one file. Give a folder with one of each process."
        )
    parts = []
    for gpu in sorted(gpus, key=str):
        elsewhere = on_gpu & (events["pid"] != gpu)
        theirs = correlation.isin(correlation[elsewhere]) & ~correlation.isin(correlation[on_gpu & ~elsewhere])
        seen = events.assign(correlation=correlation.mask(theirs, -1))[~elsewhere].reset_index(drop=True)
        parts.append(replace(recording, events=seen, gpus=len(gpus)))
    return parts
