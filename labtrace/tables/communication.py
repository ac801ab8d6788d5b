"""Communication between ranks: how long it took, how much of it was hidden under other work, and who was waited for.

On a GPU these are NCCL's kernels and their like. On a CPU gloo works in threads of its own, in which the profiler names
its ranges "gloo:all_reduce" and so on. Either contains the wait for the last rank to join.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas

from labtrace.events.dialects import matching
from labtrace.events.intervals import Union, busy
from labtrace.events.rank import Rank

# The others' waits for a straggler, as a share of the wall time and beside its own: a finding has to stand out.
STANDS_OUT, TIMES = 0.05, 2.0
EVEN = f"The ranks are even: they wait for each other for less than {STANDS_OUT:.0%} of the time."
GLOO, SENDS = "gloo:", "c10d::"  # gloo's ranges; PyTorch's operators that only hand the data over to it
MESSAGES = r"^(?:gloo:)?(?:send|recv)"  # to one other rank
SEND_RECEIVE = "SendRecv"  # kernels for these or an all-to-all
MORE = 1.5  # times as many of a kind as another rank has: they are not the same collectives
# If it is fewer, so many have to end when one of the other rank ends, give or take this share of the time to the next.
COMMON, APART = 0.8, 0.1
MOST_ENDS = 200  # of a rank are enough to tell how far its clock is from another's


def communication(rank: Rank) -> pandas.DataFrame:
    """One row, without the columns that compare ranks."""
    own = collectives(rank)
    if rank.on_cpu:
        time = rank.recorded
        others = rank.operators[~rank.operators["name"].str.startswith((GLOO, SENDS))]
        others = others[_began_in(time, others)]
    else:
        time = Union([rank.start], [rank.stop])
        others = rank.kernels[rank.kernels["kind"] != "communication"]
    wall = time.length
    work, sent = Union(others["begin"], others["end"]), Union(own["begin"], own["end"])
    compute, both, sending = (float(np.sum(each.covered(time.begin, time.end))) for each in (work, work | sent, sent))
    exposed = round(both - compute, 3) + 0.0  # whole nanoseconds, which sums of floats are not, and no -0.0
    if own.empty and rank.world_size > 1:  # it sends in a way that we do not know, or not in these steps
        sending = exposed = np.nan
    hidden = round(sending - exposed, 3) + 0.0
    row = {"wall_us": wall, "compute_us": compute, "communication_us": sending, "hidden_us": hidden}
    return pandas.DataFrame([{**row, "exposed_us": exposed, "share_of_wall": exposed / (wall or np.nan)}])


def collectives(rank: Rank) -> pandas.DataFrame:
    """The communication of a rank, in the order it began: begin, end, duration, name, message and turn."""
    if rank.on_cpu:
        events = rank.recording.events
        found = events[events["name"].str.startswith(GLOO) & _began_in(rank.recorded, events)]
        found = found.assign(message=found["name"])
    else:
        found = rank.kernels[rank.kernels["kind"] == "communication"]
    columns = ["begin", "end", "duration", "name", "message", "turn"]
    return found.sort_values("begin", kind="stable", ignore_index=True)[columns]


def is_pipeline(ranks: Collection[Rank]) -> bool:
    """Whether these ranks mostly send messages to one other rank each: they are stages of a pipeline, or one of them.

    Then communication contains the waiting for each other's work. Where the recordings do not name the messages, it
    takes several ranks to know, the first or last among them.
    """
    every = pandas.concat([collectives(rank).assign(rank=n) for n, rank in enumerate(ranks)], ignore_index=True)
    unnamed = (every["message"] == "") & matching(every["name"], SEND_RECEIVE)
    counts = unnamed.groupby(every["rank"]).sum()
    ours = matching(every["message"], MESSAGES) | (unnamed & (counts.max() > MORE * counts.min()))
    return bool(every["duration"][ours].sum() > every["duration"].sum() / 2)


def between_ranks(ranks: Mapping[int, Rank], missing: int) -> pandas.DataFrame:
    """By the rank the columns of the table that compare ranks.

    They are unknown if there is only one rank, or if its collectives are not those of other ranks.

    Args:
        ranks: those with a file.
        missing: how many have none.
    """
    own = {number: collectives(rank) for number, rank in ranks.items()}
    table = pandas.DataFrame(np.nan, own, ["waited_us", "sending_us", "came_last", "collectives", "straggler"])
    table["ranks"] = f"{len(ranks)} of {len(ranks) + missing}"
    table["pipeline"] = is_pipeline(ranks.values())
    every = matched(own)
    every["last"] = every["duration"] == every["shortest"]
    every["last"] &= ~every.duplicated(["message", "number", "duration"], keep=False)  # of two nobody was last
    for number, each in every.groupby("rank"):
        # Of two collectives at the same time one may send while the other waits, and then the rank does not wait.
        sending = busy(each["end"] - each["shortest"], each["end"])
        waited = max(0.0, busy(each["begin"], each["end"]) - sending)
        table.loc[number, table.columns[:4]] = waited, sending, each["last"].sum(), len(each)
    if table["waited_us"].isna().any() or missing or table["pipeline"].any():
        return table
    wall = max(rank.recorded.length if rank.on_cpu else rank.stop - rank.start for rank in ranks.values())
    straggler = table["waited_us"].idxmin()
    typical = table["waited_us"].drop(straggler).median()
    if typical >= max(STANDS_OUT * wall, TIMES * table["waited_us"][straggler]):
        table["straggler"] = straggler
    return table


def matched(own: Mapping[int, pandas.DataFrame]) -> pandas.DataFrame:
    """The collectives that all ranks of their group have: the tables of `collectives`, with these columns.

    | column | unit | meaning |
    |---|---|---|
    | rank, place | | and the index in the table of this rank |
    | number | | the same on all ranks, of those with this message |
    | shortest | microseconds | of the durations: that rank came last |

    They are matched by their turn or, without, by their order if all ranks have as many, and else by their ends, since
    all ranks leave a collective together.
    """
    every = pandas.concat(own, names=["rank", "place"]).reset_index()
    every = every[~matching(every["message"], MESSAGES)]
    every["number"] = every.groupby(["rank", "message"]).cumcount().where(every["turn"] < 0, every["turn"])
    for _, ours in every[every["turn"] < 0].groupby("message"):
        by_rank = [each["end"] for _, each in ours.groupby("rank")]
        fewest, most = min(by_rank, key=len), max(map(len, by_rank))
        if most > MORE * len(fewest):
            every.loc[ours.index, "number"] = np.nan
        elif most > len(fewest):
            every.loc[ours.index, "number"] = pandas.concat([_partners(ends, fewest) for ends in by_rank])
    ranks = every.groupby("message")["rank"].transform("nunique")
    us = every.groupby(["message", "number"])["duration"]
    every["shortest"] = us.transform("min")
    return every[(us.transform("size") == ranks) & (ranks > 1)].copy()


def _partners(ends: pandas.Series, others: pandas.Series) -> pandas.Series:
    """For each of these ends the place of the other rank's that was at the same time, or NaN.

    Each rank has a clock of its own. The difference that most pairs of ends have in common is that of the clocks.
    """
    others = np.sort(others)
    some = others[:: 1 + len(others) // MOST_ENDS]
    apart = np.sort(np.subtract.outer(ends.to_numpy(), some), axis=None)
    common = int(np.ceil(COMMON * len(some)))
    spread = apart[common - 1 :] - apart[: len(apart) - common + 1]
    others = others + apart[spread.argmin() + common // 2]
    place = pandas.Series(np.searchsorted((others[1:] + others[:-1]) / 2, ends), ends.index)
    found = place.where((ends - others[place]).abs() < APART * np.ptp(others) / max(1, len(others) - 1))
    return found if found.count() >= COMMON * len(others) else found * np.nan


def in_words(table: pandas.DataFrame) -> str:
    """What the table of `labtrace.Trace.communication` says about the ranks, in a sentence, or "" for a single one."""
    first = table.iloc[0]
    here, _, all_ranks = first["ranks"].partition(" of ")
    if first["pipeline"]:
        bubbles = _from_to(table["share_of_wall"], ".0%")
        return (
            f"Each rank is a stage of a pipeline: for {bubbles} of the time it only waits for the results of others or "
            "sends its own (bubbles). More micro-batches, or stages that take equally long, shorten this; a faster "
            "network hardly does."
        )
    if here != all_ranks:
        return f"Only {first['ranks']} ranks: communication contains the waiting for ranks without a file."
    if table["waited_us"].isna().any():
        several = here != "1" and first["communication_us"] > 0
        return "The ranks have different collectives, so their waits cannot be matched." if several else ""
    if np.isnan(first["straggler"]):
        typical = (table["waited_us"] / table["wall_us"]).median()
        often = table.loc[table["came_last"].idxmax()]
        if not typical >= STANDS_OUT:
            return EVEN
        return (
            f"No rank is the straggler: each comes last in turn (rank {often['rank']} in {often['came_last']:.0f} of "
            f"{often['collectives']:.0f} collectives), and a rank waits {typical:.0%} of the time for others. Pauses "
            "such as garbage collection can be the reason, or data of different sizes."
        )
    others, ms = table["rank"] != first["straggler"], table["waited_us"] / 1e3
    shares = (table["waited_us"] / table["wall_us"])[others]
    text = f"Rank {first['straggler']:.0f} is the straggler: it waited {ms.min():,.1f} ms in the collectives, and the "
    if len(shares) == 1:
        return f"{text}other one {ms.max():,.1f} ms, {shares.max():.0%} of its time."
    return f"{text}others {_from_to(ms[others], ',.1f')} ms, {_from_to(shares, '.0%')} of their time."


def _from_to(numbers: pandas.Series, form: str) -> str:
    return " to ".join(dict.fromkeys(format(number, form) for number in (numbers.min(), numbers.max())))


def _began_in(time: Union, events: pandas.DataFrame) -> np.ndarray:
    """Which events began in this time."""
    place = np.searchsorted(time.begin, events["begin"].to_numpy(), side="right") - 1
    return (place >= 0) & (events["begin"].to_numpy() < time.end[place])
