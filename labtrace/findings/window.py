"""The part of a recording that was asked for: the marked steps, without work that only happened to be in the file."""

from __future__ import annotations

from dataclasses import replace

import pandas

from labtrace.events.dialects import CALLS, GPU_WORK
from labtrace.events.rank import Rank

# A pause of so much of the time, before which only so many of the kernels come: they are not of this recording.
LONG_PAUSE, STRAYS = 0.1, 0.05


def of_steps(rank: Rank) -> pandas.DataFrame:
    """The kernels that were launched in the recorded steps or, where none is marked, in the recording; or all.

    A kernel whose launch is not in the trace is of a step before the first if it began before its stream ran any of the
    recorded steps' kernels.
    """
    kernels = rank.kernels
    launched = kernels["step"] >= 0
    launched = launched if launched.any() else kernels["call_begin"].notna()
    first = kernels["begin"].where(launched).groupby(kernels["stream"]).transform("min")
    ours = launched | (kernels["call_begin"].isna() & (kernels["begin"] > first))
    return kernels[ours] if ours.any() else kernels


def window(rank: Rank) -> Rank:
    """The rank with the kernels `of_steps` alone, and without the first few if a long pause comes after them.

    In that pause the next kernel was launched, and the GPU had nothing to do: its stream waited for work that was
    launched before the recording. The host's events all stay, but for the calls that launched the other kernels.
    """
    kernels = of_steps(rank)
    latest = kernels["end"].cummax().shift()
    pause = kernels["begin"] - latest.clip(lower=kernels["call_begin"] + kernels["call_duration"])
    if pause.max() > LONG_PAUSE * (kernels["end"].max() - kernels["begin"].min()):
        place = int(pause.argmax())
        kernels = kernels[place if place <= STRAYS * len(kernels) else 0 :]
    if len(kernels) == len(rank.kernels):
        return rank
    events, gone = rank.recording.events, rank.kernels.drop(kernels.index)
    in_order = events[events["category"].isin(GPU_WORK)].sort_values("begin", kind="stable").index  # as the kernels
    calls = events["category"].isin(CALLS) & events["correlation"].isin(set(gone["correlation"]) - {-1, 0})
    calls &= ~events["correlation"].isin(kernels["correlation"])
    events = events.drop(in_order[gone.index].union(events.index[calls])).reset_index(drop=True)
    return Rank(replace(rank.recording, events=events))
