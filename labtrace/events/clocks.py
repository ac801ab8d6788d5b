"""Times on the GPU that cannot be right: beside the host's, if the two clocks differ, and within a stream."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.dialects import GRAPH_LAUNCHES, matching
from labtrace.events.intervals import Union

CLOCKS_US = 1.0  # by which the clocks of host and GPU, and rounded times, may differ
EARLY_US = 100.0  # before its launch: a kernel of another clock, which changes the causes of idle time
LATEST_START_US = 300.0  # a kernel starts sooner after its launch if the GPU is idle
IDLE_US = 30.0  # a longer gap is no pause between two kernels
FEWEST_KERNELS = 10  # with fewer kernels nothing is concluded from all of them
OVERLAP_US = 10.0  # by which kernels of one stream may overlap: programmatic dependent launch
MOST_COVERED = 3  # kernels of its stream that begin while a kernel runs: with so many, its duration is wrong
ENDING_WELL = 0.9  # of the waits of the host: then the clocks of host and GPU agree
DOUBTFUL = 0.05  # the share of a recording in doubt from which the verdict might be another
WAITS_FOR_DEVICE = r"^(?:(?:cuda|hip|ze)DeviceSynchronize|cuCtxSynchronize)$"
WAITS_FOR_STREAM = r"^(?:(?:cuda|hip|cu)StreamSynchronize|hipMemcpyWithStream|urQueueFinish)$"


def cut_short(work: pandas.DataFrame) -> pandas.DataFrame:
    """The work, with durations that cover many kernels of their stream cut at the begin of the next one.

    The column `cut_us` has the microseconds that were cut off.
    """
    in_order = work.sort_values("begin", kind="stable")
    stream, begin, latest = in_order["stream"], in_order["begin"], in_order["end"] - OVERLAP_US
    launch = in_order["correlation"]
    new = begin.where(launch != launch.groupby(stream).shift())  # branches of one graph run at the same time
    next_launch = new.groupby(stream).shift(-1).groupby(stream).bfill()
    following = begin.groupby(stream)
    covered = (following.shift(-MOST_COVERED) < latest) & (next_launch < latest)
    end = in_order["end"].mask(covered, following.shift(-1))
    cut = work.assign(end=end, cut_us=in_order["end"] - end)
    return cut.assign(duration=cut["duration"].mask(covered, cut["end"] - cut["begin"]))


def impossible(work: pandas.DataFrame, calls: pandas.DataFrame, gpus: int) -> dict[str, tuple[pandas.Series, float]]:
    """By the fault the work that has times of a wrong clock, and the share of it that misleads.

    Args:
        work: as in `Rank.gpu_work`.
        calls: as in `Rank.operators`.
        gpus: how many the process used. A call waits for one of them, and does not say for which.
    """
    early, (late, late_share) = work["call_begin"] - work["begin"], _after_their_wait(work, calls, gpus)
    ahead = pandas.Series(_all_late(work, calls), work.index)
    later = "after a call that waited for them: the GPU's clock is late, or its times were deferred"
    all_late = f"over {LATEST_START_US:g} us after their launch on an idle GPU, all: two clocks"
    return {
        "kernels that begin before their launch: a step of a clock": (early > CLOCKS_US, (early > EARLY_US).mean()),
        f"kernels that begin {later}": (late, late_share),
        f"kernels that begin {all_late}": (ahead, ahead.mean()),
    }


def _after_their_wait(work: pandas.DataFrame, calls: pandas.DataFrame, gpus: int) -> tuple[pandas.Series, float]:
    """Which of the work began after a call that was made after its launch and waited for it, and of how many calls.

    A call that waits for one stream does not say for which. It waited for none if all streams have later work.
    """
    calls = calls.sort_values("begin")
    of_device, of_stream = (matching(calls["name"], pattern) for pattern in (WAITS_FOR_DEVICE, WAITS_FOR_STREAM))
    waits = calls[of_device | of_stream]
    launched = work["call_begin"] + work["call_duration"]
    known = work.assign(launched=launched).dropna(subset="launched").sort_values("launched")
    if gpus > 1 or waits.empty or known.empty:
        return pandas.Series(False, work.index), 0.0
    latest = []  # begin of each stream's work that was launched before each wait, NaN if there is none
    for _, ours in known.groupby("stream"):
        so_far = np.append(np.nan, np.maximum.accumulate(ours["begin"]))
        latest.append(so_far[np.searchsorted(ours["launched"], waits["begin"], side="right")])
    begun = np.where(of_device[waits.index], np.fmax.reduce(latest), np.fmin.reduce(latest))
    end = np.where(begun > waits["end"] + IDLE_US, waits["end"], np.inf)
    earliest_end = np.append(np.minimum.accumulate(end[::-1])[::-1], np.inf)
    late = work["begin"] > earliest_end[np.searchsorted(waits["begin"], launched)] + IDLE_US  # the last place for NaN
    return late, float(np.isfinite(end).mean())


def _all_late(work: pandas.DataFrame, calls: pandas.DataFrame) -> bool:
    """Whether the GPU seems to wait long before every kernel that it could have begun at once.

    Before a gap all earlier work has ended, so a kernel that was launched by then has nothing to wait for. The launch
    of a graph may take longer to arrive.
    """
    begin, end = Union(work["begin"], work["end"]).gaps()
    first = work.iloc[np.searchsorted(work["begin"], end[end - begin > IDLE_US])]
    graphs = calls.index[matching(calls["name"], GRAPH_LAUNCHES)]
    delays = (first["begin"] - first["call_begin"] - first["call_duration"])[~first["call"].isin(graphs)].dropna()
    waits = calls[matching(calls["name"], f"{WAITS_FOR_DEVICE}|{WAITS_FOR_STREAM}")]
    return len(delays) >= FEWEST_KERNELS and delays.min() > LATEST_START_US and not waits_end_well(work, waits)


def waits_end_well(work: pandas.DataFrame, waits: pandas.DataFrame) -> bool:
    """Whether the host's waits end just after the work that they waited for, nearly all: then the clocks agree.

    Args:
        work: as in `Rank.gpu_work`.
        waits: as in `Rank.synchronisations`.
    """
    known = work.dropna(subset="call_begin").sort_values("call_begin")
    ended = np.append(np.nan, known["end"].cummax())[np.searchsorted(known["call_begin"], waits["begin"])]
    after = (waits["end"] - ended)[waits["begin"] < ended]  # others had nothing to wait for
    return len(after) > 0 and bool(after.between(-CLOCKS_US, IDLE_US).mean() >= ENDING_WELL)
