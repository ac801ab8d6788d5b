"""What a recording shows of causes outside of it: work that it lacks, other users of the GPU, a clock that falls."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events.clocks import LATEST_START_US, waits_end_well
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank

LEAST = 0.1  # of the wall time: less is not told
LONG_WAIT_US = 100.0  # after the last recorded work: a wait ends sooner
FEWEST = 5  # late starts
SLOWER, ALIKE = 1.15, 0.8  # the ratio of durations that is told, and the share of the kernels' time that it holds for
SAME = 1.05  # steps of one speed differ by less
FEWEST_STEPS, SHORT_US = 4, 10.0  # shorter kernels vary anyway
SCATTERED = 1.3  # the ninth decile of a kernel's durations over the first, if others use the GPU meanwhile


class Slower(NamedTuple):
    """Kernels that take longer at times.

    Attributes:
        when: in words, "from step 5 on", "in 4 of 10 steps" or "now and then".
        ratio: how many times as long.
        times: for each kernel, how many times as long as at other times, 1 in the fast ones.
    """

    when: str
    ratio: float
    times: np.ndarray


def outside(rank: Rank, ranks: Collection[Rank]) -> str:
    """A sentence on a cause that lies outside of what was recorded of this rank, or "".

    All of them are told only of times in which the GPU was idle, by its own count.

    Args:
        rank: the recording.
        ranks: all ranks of the training, this one too.
    """
    if not rank.idle.length > LEAST * (rank.stop - rank.start):
        return ""
    return _not_recorded(rank) or _elsewhere(rank, ranks) or _shared(rank)


def _not_recorded(rank: Rank) -> str:
    """The host waited for work of the GPU after all recorded work had ended, within a gap."""
    gaps, calls = rank.gaps, rank.synchronisations
    place = np.searchsorted(gaps["begin"], calls["end"], side="right") - 1
    began, ended = (np.append(gaps[column], -np.inf)[place] for column in ("begin", "end"))
    us = np.where(calls["end"] <= ended, calls["end"] - np.maximum(calls["begin"], began), 0.0)
    long = us[us > LONG_WAIT_US].sum() / (rank.stop - rank.start)
    if rank.recording.gpus > 1 or not long >= LEAST:
        return ""
    return (
        f"For {long:.0%} of the time the host waited for work of the GPU that is not recorded, since all recorded "
        "kernels had ended. A loop inside of a CUDA graph, or events that were dropped, can be the reason"
    )


def _elsewhere(rank: Rank, ranks: Collection[Rank]) -> str:
    """Another GPU of the process worked while this one was idle."""
    others = [one for one in ranks if one is not rank and one.recording.file == rank.recording.file]
    if not others:
        return ""
    work = pandas.concat([one.kernels[["begin", "end"]] for one in others])
    working = Union(work["begin"], work["end"]).covered(rank.idle.begin, rank.idle.end)
    meanwhile = float(np.sum(working)) / rank.idle.length
    if meanwhile <= 0.5:
        return ""
    return (
        f"The GPU waits {rank.idle.length / (rank.stop - rank.start):.0%} of the time, and for {meanwhile:.0%} of that "
        "another GPU of this process works: they take turns. Several micro-batches in a pipeline, or a copy of the "
        "model on each GPU (DistributedDataParallel), let them work together"
    )


def _shared(rank: Rank) -> str:
    """Kernels that were launched on an idle GPU began late, again and again."""
    gaps = rank.gaps
    following = rank.kernels.iloc[gaps["next"]]
    launched = (following["call_begin"] + following["call_duration"]).to_numpy()
    us = gaps["end"].to_numpy() - np.maximum(gaps["begin"], launched)
    late = (us > LATEST_START_US) & (following["sharing"] == 1).to_numpy()  # a graph takes longer to arrive
    share = us[late].sum() / (rank.stop - rank.start)
    if late.sum() < FEWEST or not share >= LEAST:
        return ""
    clocks = "" if waits_end_well(rank.gpu_work, rank.synchronisations) else ", or the clocks of host and GPU differ"
    return (
        f"For {share:.0%} of the time the GPU seems idle though kernels are launched, which begin over "
        f"{LATEST_START_US:g} us later: another process has the GPU meanwhile, or a debugger{clocks}"
    )


def slower(kernels: pandas.DataFrame) -> Slower | None:
    """When nearly all kernels take longer than at other times of the recording, or None.

    A kernel is compared with those of its name that are launched at the same place of other steps. Steps whose inputs
    differ in size take any time; those of a GPU whose clock falls, or that others use, take one of two.

    Args:
        kernels: in the order of their launches, with name, kind, step and duration.
    """
    place = kernels.groupby(["step", "name"]).cumcount()
    ours = kernels.assign(place=place)[(kernels["step"] >= 0) & (kernels["kind"] == "compute")]
    blocks = ours.groupby(["name", "place"])["blocks_per_sm"].nunique()
    table = ours.pivot(index=["name", "place"], columns="step", values="duration")[blocks <= 1]  # of inputs of one size
    table = table.loc[:, table.notna().sum() > table.notna().sum().max() / 2].dropna()  # a step may be cut off
    us = table.sum(axis=1)
    table = table[table.min(axis=1) > SHORT_US]
    if table.shape[1] < FEWEST_STEPS or not us[table.index].sum() >= ALIKE * ours["duration"].sum() > 0:
        return None
    us, ratios = us[table.index], table.div(table.median(axis=1), axis=0)
    steps = pandas.Series(np.average(ratios, axis=0, weights=us), index=ratios.columns)
    if found := _slow_steps(ratios, us, steps):
        when, slow, ratio = found
        return Slower(when, ratio, np.where(kernels["step"].isin(slow), ratio, 1.0))
    low, high = (table.div(steps).quantile(share, axis=1) for share in (0.1, 0.9))
    if us[high > SCATTERED * low].sum() < ALIKE * us.sum():
        return None
    best = low.reindex(pandas.MultiIndex.from_arrays([kernels["name"], place])).to_numpy()
    times = np.fmax(1.0, kernels["duration"] / best)
    return Slower("now and then", float(np.average(high / low, weights=us)), times.to_numpy())


def _slow_steps(
    ratios: pandas.DataFrame, us: pandas.Series, steps: pandas.Series
) -> tuple[str, pandas.Index, float] | None:
    """When, which steps are slow, and the ratio to the others, if nearly all kernels are slower in them."""
    apart = [k for k in range(2, len(steps) - 1) if steps.iloc[k:].min() > steps.iloc[:k].max()]  # slower from then on
    if apart:
        place = max(apart, key=lambda k: steps.iloc[k:].median() / steps.iloc[:k].median())
        slow, when = steps.index[place:], f"from step {steps.index[place]} on"
    else:
        in_order = steps.sort_values()
        slow = in_order.index[1 + int((in_order.to_numpy()[1:] / in_order.to_numpy()[:-1]).argmax()) :]
        when = f"in {len(slow)} of {len(steps)} steps"
    fast = steps.index.difference(slow)
    ratio = float(steps[slow].median() / steps[fast].median())
    of_names = ratios[slow].median(axis=1) / ratios[fast].median(axis=1)
    alike = us[of_names > 1 + (ratio - 1) / 2].sum() / us.sum()
    two = all(steps[ours].max() <= SAME * steps[ours].min() for ours in (fast, slow))
    few = two and 2 <= len(slow) <= len(steps) / 2  # else the others are fast: a last batch that is small
    return (when, slow, ratio) if ratio >= SLOWER and alike >= ALIKE and (apart or few) else None
