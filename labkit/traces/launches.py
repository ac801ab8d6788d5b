"""How one rank's kernels got to the GPU: their launches, the queue, and what ran at the same time.

Each function makes one rank's rows of the table that the method of the same name of `labkit.Trace` documents.
"""

from __future__ import annotations

import numpy as np
import pandas

from labkit.traces.intervals import busy, time_at_each_level
from labkit.traces.ranks import Rank
from labkit.traces.reading import TraceError


def launches(rank: Rank, runtime_cutoff: float, delay_cutoff: float) -> pandas.DataFrame:
    """Four rows: what is the matter, and with how many kernels."""
    kernels = rank.kernels
    found = kernels["call_begin"].notna()
    long_call = kernels["call_duration"] > runtime_cutoff
    # A graph's one call launches many kernels: each bears its part of the call.
    short = kernels["duration"] < kernels["call_duration"] / kernels["sharing"]
    cases = {
        f"delay > {delay_cutoff:g} us": (kernels["delay"] > delay_cutoff, found),
        f"call > {runtime_cutoff:g} us": (long_call, found),
        "kernel shorter than its call": (short & ~long_call, found),
        "no launch found": (~found, pandas.Series(True, found.index)),
    }
    return pandas.DataFrame([{"what": what, **_shares(rank, *case)} for what, case in cases.items()])


def _shares(rank: Rank, these: pandas.Series, among: pandas.Series) -> dict[str, float]:
    """How many kernels are `these`, and their shares of those `among` which it can be known; NaN if there is none."""
    if not among.any():
        return dict.fromkeys(("kernels", "share_of_kernels", "gpu_us", "share_of_gpu_time", "share_of_wall"), np.nan)
    ours, time = rank.kernels[these], rank.kernels["duration"]
    return {
        "kernels": len(ours),
        "share_of_kernels": len(ours) / among.sum(),
        "gpu_us": time[these].sum(),
        "share_of_gpu_time": time[these].sum() / (time[among].sum() or np.nan),
        "share_of_wall": busy(ours["begin"], ours["end"]) / ((rank.stop - rank.start) or np.nan),
    }


def waiting_times(rank: Rank) -> tuple[np.ndarray, np.ndarray]:
    """When each kernel with a known launch began to wait, and when it began to run.

    Raises:
        TraceError: no kernel has one.
    """
    launched = rank.kernels[rank.kernels["call_begin"].notna()]
    if launched.empty:
        raise TraceError(
            f"{rank.recording.file}: no launch of any kernel in this trace (CUDA runtime or driver calls with the "
            "kernels' correlation), so nothing about the queue can be known. Record the host, too: "
            "ProfilerActivity.CPU, as labkit.record does."
        )
    begin = launched["begin"].to_numpy()
    return np.minimum(launched["call_begin"].to_numpy(), begin), begin  # two clocks may disagree a little


def queue(rank: Rank) -> pandas.DataFrame:
    """The queue's length as a step function."""
    launched, began = waiting_times(rank)
    changes = pandas.Series(np.repeat([1, -1], [len(launched), len(began)]), index=np.concatenate([launched, began]))
    length = changes.groupby(level=0).sum().cumsum()
    return pandas.DataFrame({"time_us": length.index, "waiting": length.to_numpy(), "mean": mean_queue(rank)})


def mean_queue(rank: Rank) -> float:
    """How many kernels waited on average between the first and the last GPU activity."""
    launched, began = waiting_times(rank)
    waited = began - np.clip(launched, rank.start, began)  # the first kernel's wait is before the wall time
    return float(np.sum(waited)) / ((rank.stop - rank.start) or np.nan)


def concurrency(rank: Rank) -> pandas.DataFrame:
    """All kernels, then those of each range."""
    kernels = rank.kernels
    tables = [_levels(rank, "all", [kernels])]
    in_ranges = kernels[kernels["range"] >= 0]
    in_ranges = in_ranges.assign(range_name=rank.ranges["name"].to_numpy()[in_ranges["range"]])
    for name, ours in in_ranges.groupby("range_name", sort=False):
        tables.append(_levels(rank, name, [times for _, times in ours.groupby("range")]))
    return pandas.concat(tables, ignore_index=True)


def _levels(rank: Rank, name: str, times: list[pandas.DataFrame]) -> pandas.DataFrame:
    """How long 0, 1, 2, ... streams were busy, summed over `times`: the kernels of each run of the range."""
    levels, union, total = np.zeros(1), 0.0, 0.0
    for kernels in times:
        streams = rank.streams(kernels)
        here = time_at_each_level(streams.values(), kernels["begin"].min(), kernels["end"].max())
        size = max(len(levels), len(here))
        levels = np.pad(levels, (0, size - len(levels))) + np.pad(here, (0, size - len(here)))
        union += busy(kernels["begin"], kernels["end"])
        total += kernels["duration"].sum()
    shares = levels / (levels.sum() or np.nan)
    columns = {"range": name, "busy_streams": np.arange(len(levels)), "us": levels, "share_of_wall": shares}
    return pandas.DataFrame({**columns, "union_us": union, "sum_us": total})
