"""Faults of a recording, and the tables that cannot be trusted because of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events.clocks import DOUBTFUL, FEWEST_KERNELS, OVERLAP_US
from labtrace.events.rank import Rank

# A pause longer than both, the second a share of the recording, separates events with a wrong time from the others.
STRAY_PAUSE_US, STRAY_PAUSE_SHARE = 6e7, 0.9
COMMON_NAMES = 0.5  # the share of kernel names that two replays of one graph have in common at least
MOST_STEPS = 0.05  # of the kernels: if more overlap, no clock has made a step
NEGLIGIBLE = 0.01  # a finding that can change less of the time distrusts no table
DELAYS = "idle, gaps, queue, summary, what_if"
LAUNCHED = f"{DELAYS}, temporal by step, concurrency by range, operators (GPU)"
ALL_OF_GPU = "temporal, idle, gaps, kernels, queue, concurrency, summary, communication, what_if"
OF_HOST = "operators, ranges, gaps"
OF_RANKS = "communication (waited_us, straggler), remedies (waiting for other ranks)"


class Finding(NamedTuple):
    """A row of the table, and whether a verdict has to name it, and is not given if its share is above `DOUBTFUL`."""

    what: str
    events: int
    example: str
    share: float
    tables: str = ""
    of_verdict: bool = True


def audit(rank: Rank, ranks: Collection[Rank] = ()) -> pandas.DataFrame:
    """The table that `labtrace.Trace.audit` explains, of one rank. `ranks` are all ranks of the folder."""
    found = findings(rank)
    if missing := missing_ranks(ranks):
        what = f"ranks without a file, of {len(ranks) + missing} (world_size)"
        found.append(Finding(what, missing, "", np.nan, OF_RANKS if len(ranks) > 1 else ""))
    return pandas.DataFrame(found, columns=Finding._fields).drop(columns="of_verdict")


def findings(rank: Rank) -> list[Finding]:
    """The faults of the recording of one rank."""
    found = [*_left_out(rank), *_launches(rank), *_graphs(rank), *_overlaps(rank)]
    found += [*_times(rank), *_no_durations(rank), *_warnings(rank)]
    return [each._replace(tables="") if each.share < NEGLIGIBLE else each for each in found if each.events > 0]


def doubts(rank: Rank) -> tuple[str, bool]:
    """A sentence with the faults that a verdict has to name first, or "", and whether they allow no verdict at all."""
    serious = [finding for finding in findings(rank) if finding.tables and finding.of_verdict]
    named = [f"{finding.events:,} {finding.what}" for finding in serious]
    sentence = f"This recording is not sound: {'; '.join(named)} (see Trace.audit)." if named else ""
    return sentence, any(finding.share > DOUBTFUL for finding in serious)


def gpu_is_sound(rank: Rank) -> bool:
    """Whether the times of the GPU's work can be trusted among themselves, if not beside the host's."""
    doubtful = [finding for finding in findings(rank) if finding.share > DOUBTFUL and finding.of_verdict]
    return not any(finding.tables.startswith(ALL_OF_GPU) for finding in doubtful)


def missing_ranks(ranks: Collection[Rank]) -> int:
    """How many ranks of a run have no file here, 0 if the files do not say."""
    processes = {rank.recording.rank for rank in ranks}  # one process may have several GPUs
    return max(0, max((rank.world_size for rank in ranks), default=0) - len(processes))


def _row(what: str, events: pandas.DataFrame, share: float, tables: str = "", of_verdict: bool = True) -> Finding:
    example = str(events["name"].iloc[0])[:80] if len(events) else ""
    return Finding(what, len(events), example, float(share), tables, of_verdict)


def _share(us: float, events: pandas.DataFrame) -> float:
    """The share that these microseconds are of the time from the first to the last of the events, at most 1."""
    lasted = events["end"].max() - events["begin"].min()
    return min(1.0, us / lasted) if lasted > 0 else 0.0


def _left_out(rank: Rank) -> list[Finding]:
    kept, tables = len(rank.recording.events), f"{ALL_OF_GPU}, {OF_HOST}"
    left_out = rank.recording.left_out.items()
    return [Finding(f"{why}: left out", many, "", many / (many + kept), tables, False) for why, many in left_out]


def _launches(rank: Rank) -> list[Finding]:
    work, launching = rank.gpu_work, rank.launches
    if work.empty:
        return []
    captured = rank.captures.covered(launching["begin"], launching["end"]) > 0  # these run nothing
    missing = launching[~captured & ~launching["correlation"].isin(work["correlation"])]
    early = missing[missing["begin"] < work["call_begin"].min()]
    lost = missing[missing["begin"].between(work["call_begin"].min(), work["call_begin"].max())]
    unknown = work[work["call"] < 0]
    first = work[work["call"] >= 0].groupby("stream")["begin"].min()  # streams run their kernels in order
    earlier = unknown["begin"] < unknown["stream"].map(first).fillna(work["call_begin"].min())
    unlinked = unknown[~earlier]
    gaps_before = rank.gaps["us"][rank.gaps["next"].isin(unlinked.index)].sum()
    lost_share = max(len(lost) / max(1, len(launching)), _idle_after(rank, lost))
    too_many = len(work) / 2 < len(unlinked) < len(work)  # a replay can do without some, and without any there is none
    unlinked_share = _share(unlinked["duration"].sum() + gaps_before, work)
    return [
        _row("launches before the first recorded kernel: not recorded yet", early, 0.0),
        _row("launches whose kernel is missing: dropped", lost, lost_share, ALL_OF_GPU),
        _row("kernels, copies and memsets whose launch is missing", unlinked, unlinked_share, LAUNCHED, too_many),
    ]


def _idle_after(rank: Rank, lost: pandas.DataFrame) -> float:
    """The share of the wall time in which the GPU seems idle, and may have run the kernels of these launches."""
    gaps, work = rank.gaps, rank.gpu_work
    launched = work["call_begin"].ffill().cummax().to_numpy()
    before = np.searchsorted(lost["begin"], launched[gaps["next"] - 1])
    after = np.searchsorted(lost["begin"], launched[gaps["next"]])
    return _share(gaps["us"][after > before].sum(), work)


def _graphs(rank: Rank) -> list[Finding]:
    """Replays of a graph that have fewer kernels than other replays of the same graph.

    Replays with the same kernels are replays of one graph, and so are replays with a part of these kernels, unless
    every step has equally many of them. A replay unlike all others is compared with those that share at least half of
    its kernels' names.
    """
    work = rank.gpu_work[rank.gpu_work["call"].isin(rank.graph_launches.index)]
    steps: dict[frozenset, list[int]] = defaultdict(list)  # of the replays with these kernels
    for call, names in work.groupby("call")["name"]:
        steps[frozenset(Counter(names).items())].append(rank.graph_launches[call])
    groups: list[tuple[Counter, list[Counter]]] = []  # the most kernels of each name, and the replays
    largest_first = sorted(steps.items(), key=lambda item: -sum(dict(item[0]).values()))
    for kernels, of_replays in sorted(largest_first, key=lambda item: len(item[1]) == 1):
        replay, alone = Counter(dict(kernels)), len(of_replays) == 1
        in_each_step = np.bincount(np.array(of_replays) + 1, minlength=len(rank.steps) + 1)[1:]
        regular = len(in_each_step) > 1 and in_each_step.min() == in_each_step.max()
        for most, alike in groups:
            common = len(replay.keys() & most.keys()) >= COMMON_NAMES * len(replay.keys() | most.keys())
            if (alone and common) or (replay <= most and not regular):
                alike += [replay] * len(of_replays)
                most |= replay
                break
        else:
            groups.append((replay.copy(), [replay] * len(of_replays)))
    lost = sum((most - replay for most, alike in groups for replay in alike), Counter())
    share = lost.total() / max(1, lost.total() + len(work))
    what = "kernels missing in replays of a graph that other replays have"
    return [Finding(what, lost.total(), min(lost, default="")[:80], share, ALL_OF_GPU)]


def _overlaps(rank: Rank) -> list[Finding]:
    """Work that overlaps on one stream, unless one call launched both."""
    work = rank.gpu_work.sort_values(["stream", "begin"], kind="stable")
    before = work[["stream", "correlation", "end"]].shift()
    overlap = before["end"] - work["begin"]
    both = (work["stream"] == before["stream"]) & (overlap > OVERLAP_US)
    both &= work["correlation"] != before["correlation"]  # branches of a graph run at the same time
    ours = work[both]
    share_of_work = _share(overlap[both].sum(), work)
    several = len(ours) > MOST_STEPS * len(work)  # a clock makes few steps
    why = "those of several streams, recorded as of one" if several else "a step of a clock"
    return [_row(f"kernels of one stream that overlap: {why}", ours, share_of_work, ALL_OF_GPU)]


def _times(rank: Rank) -> list[Finding]:
    """Times of another clock than the host's, durations that cannot be right, and events far from all others."""
    work, columns = rank.gpu_work, ["name", "begin", "end"]
    found = [_row(what, work[those], share, DELAYS) for what, (those, share) in rank.impossible_times.items()]
    overlong = work[work["cut_us"] > 0]
    what = "kernels that seem to run while many others of their stream do: cut at the begin of the next"
    found.append(_row(what, overlong, max(NEGLIGIBLE, _share(overlong["duration"].sum(), work)), ALL_OF_GPU))
    events = pandas.concat([rank.operators[columns], work[columns]]).sort_values("begin", ignore_index=True)
    pauses = (events["begin"] - events["end"].cummax().shift()).fillna(0.0)
    place = int(pauses.argmax()) if len(events) else 0
    far = pauses.max() > max(STRAY_PAUSE_US, STRAY_PAUSE_SHARE * (events["end"].max() - events["begin"].min()))
    two_clocks = work["begin"].min() > rank.operators["end"].max()
    if far and (two_clocks or min(place, len(events) - place) <= max(1, 0.01 * len(events))):
        stray = events[:place] if place < len(events) / 2 else events[place:]
        what = "events a minute or more away from all others: a wrong time"
        found.append(_row(what, stray, 1.0, f"{ALL_OF_GPU}, {OF_HOST}"))
    return found


def _no_durations(rank: Rank) -> list[Finding]:
    """Kernels that old versions of PyTorch rounded down to no duration, where all times are whole microseconds."""
    work = rank.gpu_work
    whole = bool((work["begin"] % 1 == 0).all() and (work["duration"] % 1 == 0).all())
    timeless = work[work["duration"] == 0] if whole else work[:0]
    most = len(work) > FEWEST_KERNELS and len(timeless) > 0.5 * len(work)
    share = 1.0 if most else _share(len(timeless), work)  # each took less than a microsecond
    return [_row("kernels of no duration, all times being whole microseconds", timeless, share, "kernels, idle, gaps")]


def _warnings(rank: Rank) -> list[Finding]:
    """Kineto writes its warnings and errors under these names."""
    rows: list[Finding] = []
    for name in ("ERROR", "WARNING"):
        texts = rank.recording.meta.get(name)
        texts = texts if isinstance(texts, list) else [texts] if texts else []
        what, tables = "the profiler's own warning", f"{ALL_OF_GPU}, {OF_HOST}"
        rows += [Finding(what, 1, str(text)[:200], np.nan, tables, False) for text in texts]
    return rows
