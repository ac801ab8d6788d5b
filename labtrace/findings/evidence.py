"""What a recording shows of causes outside of it: work that it lacks, other users of the GPU, a clock that falls."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events.clocks import LATEST_START_US, waits_end_well
from labtrace.events.dialects import matching
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank

LEAST = 0.1  # of the wall time: less is not told
SYNCHRONISE = r"(?:Device|Stream|Ctx)Synchronize$"  # the host does nothing else in these
LONG_WAIT_US = 100.0  # after the last recorded work: a wait ends sooner
FEWEST = 5  # late starts
SLOWER, ALIKE = 1.15, 0.8  # the ratio of durations that is told, and the share of the kernels' time that it holds for


class Slower(NamedTuple):
    """From this step on kernels take so many times as long as before."""

    step: int
    ratio: float


def outside(rank: Rank, ranks: Collection[Rank]) -> str:
    """A sentence on a cause that lies outside of what was recorded of this rank, or "".

    Args:
        rank: the recording.
        ranks: all ranks of the training, this one too.
    """
    return _not_recorded(rank) or _elsewhere(rank, ranks) or _shared(rank)


def _not_recorded(rank: Rank) -> str:
    """The host waited for work of the GPU after all recorded work had ended."""
    calls = rank.operators[matching(rank.operators["name"], SYNCHRONISE)]
    ends = np.append(-np.inf, np.sort(rank.kernels["end"]))
    ended = ends[np.searchsorted(ends, calls["end"], side="right") - 1]
    us = np.minimum(calls["end"], rank.stop) - np.maximum(calls["begin"], np.maximum(ended, rank.start))
    long = us[us > LONG_WAIT_US].sum() / ((rank.stop - rank.start) or np.nan)
    if rank.recording.gpus > 1 or not long >= LEAST:
        return ""
    return (
        f"For {long:.0%} of the time the host waited for work of the GPU that is not recorded, since all recorded "
        "kernels had ended. A loop inside of a CUDA graph, or events that were dropped, can be the reason"
    )


def _elsewhere(rank: Rank, ranks: Collection[Rank]) -> str:
    """Another GPU of the process worked while this one was idle."""
    others = [one for one in ranks if one is not rank and one.recording.file == rank.recording.file]
    begin, end = rank.busy.gaps()
    idle = float(np.sum(end - begin))
    if not others or idle < LEAST * (rank.stop - rank.start):
        return ""
    theirs = [one.kernels[["begin", "end"]] for one in others]
    work = pandas.concat(theirs)
    meanwhile = float(np.sum(Union(work["begin"], work["end"]).covered(begin, end))) / idle
    if meanwhile <= 0.5:
        return ""
    return (
        f"The GPU waits {idle / (rank.stop - rank.start):.0%} of the time, and for {meanwhile:.0%} of that another GPU "
        "of this process works: they take turns. Several micro-batches in a pipeline, or a copy of the model on each "
        "GPU (DistributedDataParallel), let them work together"
    )


def _shared(rank: Rank) -> str:
    """Kernels that were launched on an idle GPU began late, again and again."""
    gaps = rank.gaps
    following = rank.kernels.iloc[gaps["next"]]
    launched = (following["call_begin"] + following["call_duration"]).to_numpy()
    us = gaps["end"].to_numpy() - np.maximum(gaps["begin"], launched)
    late = (us > LATEST_START_US) & (following["sharing"] == 1).to_numpy()  # a graph takes longer to arrive
    share = us[late].sum() / ((rank.stop - rank.start) or np.nan)
    if late.sum() < FEWEST or not share >= LEAST:
        return ""
    clocks = "" if waits_end_well(rank.gpu_work, rank.operators) else ", or the clocks of host and GPU differ"
    return (
        f"For {share:.0%} of the time the GPU seems idle though kernels are launched, which begin over "
        f"{LATEST_START_US:g} us later: another process has the GPU meanwhile, or a debugger{clocks}"
    )


def slower(rank: Rank) -> Slower | None:
    """The step from which on nearly all kernels take longer than before, by their names, or None.

    The GPU's clock may have fallen. In no later step they may be as fast as in one of the earlier steps.
    """
    kernels = rank.kernels[(rank.kernels["step"] >= 0) & (rank.kernels["kind"] == "compute")]
    by_name = kernels.groupby(["name", "step"])["duration"].median().unstack().dropna()
    us = kernels.groupby("name")["duration"].sum().reindex(by_name.index)
    ratios = by_name.div(by_name.median(axis=1).replace(0.0, np.nan), axis=0).dropna()
    if ratios.shape[1] < 4 or ratios.empty:
        return None
    steps = np.average(ratios, axis=0, weights=us[ratios.index])
    apart = [steps[k:].min() > steps[:k].max() for k in range(2, len(steps) - 1)]
    if not any(apart):
        return None
    found = [np.median(steps[k:]) / np.median(steps[:k]) if ok else 0.0 for k, ok in enumerate(apart, 2)]
    place, ratio = 2 + int(np.argmax(found)), max(found)
    of_names = ratios.iloc[:, place:].median(axis=1) / ratios.iloc[:, :place].median(axis=1)
    alike = us[of_names.index[of_names > 1 + (ratio - 1) / 2]].sum() / us.sum()
    return Slower(int(ratios.columns[place]), float(ratio)) if ratio >= SLOWER and alike >= ALIKE else None
