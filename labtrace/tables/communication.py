"""Communication between ranks: how long it took, how much of it was hidden under other work, and who was waited for.

On a GPU these are NCCL's kernels and their like. On a CPU gloo works in threads of its own, in which the profiler names
its ranges "gloo:all_reduce" and so on. Either contains the wait for the last rank to join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas

from labtrace.events.intervals import Union, busy
from labtrace.events.rank import Rank

# The others' waits for a straggler, as a share of the wall time and beside its own: a finding has to stand out.
STANDS_OUT, TIMES = 0.05, 2.0
EVEN = f"The ranks are even: they wait for each other for less than {STANDS_OUT:.0%} of the time."
GLOO, SENDS = "gloo:", "c10d::"  # gloo's ranges; PyTorch's operators that only hand the data over to it


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
    """The communication of a rank, in the order it began: begin, end and duration."""
    if rank.on_cpu:
        events = rank.recording.events
        found = events[events["name"].str.startswith(GLOO) & _began_in(rank.recorded, events)]
    else:
        found = rank.kernels[rank.kernels["kind"] == "communication"]
    return found.sort_values("begin", kind="stable", ignore_index=True)[["begin", "end", "duration"]]


def between_ranks(ranks: Mapping[int, Rank], missing: int) -> pandas.DataFrame:
    """By the rank the columns of the table that compare ranks, as `waits` finds them.

    They are unknown if there is only one rank, or if the ranks have different numbers of collectives, or none.

    Args:
        ranks: those with a file.
        missing: how many have none.
    """
    own = {number: collectives(rank) for number, rank in ranks.items()}
    counts = {len(each) for each in own.values()}
    table = pandas.DataFrame(np.nan, own, ["waited_us", "sending_us", "came_last", "collectives", "straggler"])
    table["ranks"] = f"{len(ranks)} of {len(ranks) + missing}"
    if len(ranks) < 2 or len(counts) > 1 or counts == {0}:
        return table
    sending = np.min([each["duration"] for each in own.values()], axis=0)
    straggler, waited = waits({number: zip(each["begin"], each["end"], strict=True) for number, each in own.items()})
    table["waited_us"] = pandas.Series(waited)
    table["sending_us"] = {number: busy(each["end"] - sending, each["end"]) for number, each in own.items()}
    durations = pandas.DataFrame({number: each["duration"] for number, each in own.items()})
    table["came_last"] = durations.eq(durations.min(axis=1), axis=0).sum()
    table["collectives"] = len(durations)
    wall = max(rank.recorded.length if rank.on_cpu else rank.stop - rank.start for rank in ranks.values())
    typical = float(np.median([us for number, us in waited.items() if number != straggler]))
    if typical >= max(STANDS_OUT * wall, TIMES * waited[straggler]) and not missing:
        table["straggler"] = straggler
    return table


def waits(collectives: Mapping[int, Iterable[tuple[float, float]]]) -> tuple[int, dict[int, float]]:
    """The rank that the others waited for, and how long each rank waited in its collectives, in microseconds.

    All ranks leave a collective together. So the rank that is in it for the shortest time came last, and did not wait.

    Args:
        collectives: of each rank begin and end of each of its collectives, in the same order, by its own clock.
    """
    times = {rank: np.array([*own], dtype=float).T for rank, own in collectives.items()}
    shortest = np.min([end - begin for begin, end in times.values()], axis=0)
    # Of two collectives at the same time one may send while the other waits, and then the rank does not wait.
    waited = {rank: busy(begin, end) - busy(end - shortest, end) for rank, (begin, end) in times.items()}
    return min(waited, key=lambda rank: waited[rank]), waited


def in_words(table: pandas.DataFrame) -> str:
    """What the table of `labtrace.Trace.communication` says about the ranks, in a sentence, or "" for a single one."""
    first = table.iloc[0]
    here, _, all_ranks = first["ranks"].partition(" of ")
    if here != all_ranks:
        return f"Only {first['ranks']} ranks: communication contains the waiting for ranks without a file."
    if np.isnan(first["waited_us"]):
        several = here != "1" and first["communication_us"] > 0
        return "The ranks have different collectives, so their waits cannot be matched." if several else ""
    if np.isnan(first["straggler"]):
        typical, all_of_them = (table["waited_us"] / table["wall_us"]).median(), first["collectives"]
        often = table.loc[table["came_last"].idxmax()]
        if not typical >= STANDS_OUT:
            return EVEN
        return (
            f"No rank is the straggler: each comes last in turn (rank {often['rank']} in {often['came_last']:.0f} of "
            f"{all_of_them:.0f} collectives), and a rank waits {typical:.0%} of the time for others. Pauses such as "
            "garbage collection can be the reason, or data of different sizes."
        )
    others, ms = table["rank"] != first["straggler"], table["waited_us"] / 1e3
    shares = (table["waited_us"] / table["wall_us"])[others]
    text = f"Rank {first['straggler']:.0f} is the straggler: it waited {ms.min():,.1f} ms in the collectives, and the "
    if len(shares) == 1:
        return f"{text}other one {ms.max():,.1f} ms, {shares.max():.0%} of its time."
    times, parts = (f"{ms[others].min():,.1f}", f"{ms.max():,.1f}"), (f"{shares.min():.0%}", f"{shares.max():.0%}")
    return f"{text}others {' to '.join(dict.fromkeys(times))} ms, {' to '.join(dict.fromkeys(parts))} of their time."


def _began_in(time: Union, events: pandas.DataFrame) -> np.ndarray:
    """Which events began in this time."""
    place = np.searchsorted(time.begin, events["begin"].to_numpy(), side="right") - 1
    return (place >= 0) & (events["begin"].to_numpy() < time.end[place])
