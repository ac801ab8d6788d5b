"""Faults of a recording, and the tables that cannot be trusted because of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.dependencies import CLOCKS_US
from labtrace.dialects import LAUNCHES, matching
from labtrace.rank import Rank
from labtrace.tables import KERNEL_WAIT_US, find_gaps

OVERLAP_US = 10.0  # by which kernels of one stream may overlap: programmatic dependent launch
CLOCK_ERROR_US = 1e3  # an error of the clocks that changes the causes of idle time
LONGEST_QUEUED_US = 1e5  # a kernel does not wait longer in a queue that is sometimes empty
# A pause longer than both, the second a share of the recording, separates events with a wrong time from the others.
STRAY_PAUSE_US, STRAY_PAUSE_SHARE = 6e7, 0.9
FEWEST_KERNELS = 10  # with fewer kernels nothing is concluded from all of them
COMMON_NAMES = 0.5  # the share of kernel names that two replays of one graph have in common at least
NO_VERDICT_ABOVE = 0.05  # the share of a recording in doubt from which the verdict might be another
DELAYS = "idle, gaps, launches, queue, summary"
LAUNCHED = f"{DELAYS}, temporal by step, concurrency by range, operators (GPU), what_if"
ALL_OF_GPU = "temporal, idle, gaps, kernels, launches, queue, concurrency, summary, communication, what_if"
OF_HOST = "operators, ranges, gaps"
RANKS = "communication (waited_us, straggler), remedies (waiting for other ranks)"


class Finding(NamedTuple):
    """A fault: a row of the table. `misleads` is the share of the recording, from 0 to 1, that it puts in doubt."""

    what: str
    events: int
    example: str
    tables: str
    misleads: float = 0.0


def audit(rank: Rank, ranks: Collection[Rank] = ()) -> pandas.DataFrame:
    """The table that `labtrace.Trace.audit` explains, of one rank. `ranks` are all ranks of the folder."""
    found = [(each.what, each.events, each.example, each.tables) for each in findings(rank)]
    if missing := missing_ranks(ranks):
        found.append((f"ranks without a file, of {len(ranks) + missing} (world_size)", missing, "", RANKS))
    return pandas.DataFrame(found, columns=["what", "events", "example", "tables"])


def findings(rank: Rank) -> list[Finding]:
    """The faults of the recording of one rank."""
    found = [*_left_out(rank), *_launches(rank), *_graphs(rank), *_overlaps(rank)]
    found += [*_clocks(rank), *_no_durations(rank), *_warnings(rank)]
    return [finding for finding in found if finding.events > 0]


def doubts(rank: Rank) -> tuple[str, bool]:
    """A sentence with the faults that a verdict has to name first, or "", and whether they allow no verdict at all."""
    serious = [finding for finding in findings(rank) if finding.misleads > 0]
    said = [f"{finding.events:,} {finding.what}" for finding in serious]
    sentence = f"This recording is not sound: {'; '.join(said)} (see Trace.audit)." if said else ""
    return sentence, any(finding.misleads > NO_VERDICT_ABOVE for finding in serious)


def missing_ranks(ranks: Collection[Rank]) -> int:
    """How many ranks of a run have no file in the folder, 0 for a single file or if the files do not say."""
    return max(0, max(rank.world_size for rank in ranks) - len(ranks)) if len(ranks) > 1 else 0


def _row(what: str, events: pandas.DataFrame, tables: str, misleads: float = 0.0) -> Finding:
    return Finding(what, len(events), str(events["name"].iloc[0])[:80] if len(events) else "", tables, misleads)


def _left_out(rank: Rank) -> list[Finding]:
    tables = f"{ALL_OF_GPU}, {OF_HOST}"
    return [Finding(f"{reason}: left out", many, "", tables) for reason, many in rank.recording.left_out.items()]


def _launches(rank: Rank) -> list[Finding]:
    work, calls = rank.gpu_work, rank.calls
    if work.empty:
        return []
    launching = calls[matching(calls["name"], LAUNCHES)]
    captured = rank.captures.covered(launching["begin"], launching["end"]) > 0  # these run nothing
    missing = launching[~captured & ~launching["correlation"].isin(work["correlation"])]
    late = missing["begin"] > work["call_begin"].max()
    early = work[work["begin"] < work["call_begin"] - CLOCKS_US]
    far = (work["begin"] < work["call_begin"] - CLOCK_ERROR_US).mean()
    lost, share = missing[~late], max(1, len(launching))
    return [
        _row(
            "launches whose kernel is missing: dropped",
            lost,
            ALL_OF_GPU,
            max(len(lost) / share, _idle_after(rank, lost)),
        ),
        _row("launches whose kernel is missing at the end: not recorded any more", missing[late], ALL_OF_GPU),
        _row("kernels, copies and memsets whose launch is missing", work[work["call"] < 0], LAUNCHED),
        _row("kernels that begin before their launch: a step of a clock", early, LAUNCHED, far),
    ]


def _idle_after(rank: Rank, lost: pandas.DataFrame) -> float:
    """The share of the wall time in which the GPU seems idle, and may have run the kernels of these launches."""
    if lost.empty or not rank.single_gpu:
        return 0.0
    gaps, launched = find_gaps(rank.kernels), rank.kernels["call_begin"].ffill().cummax().to_numpy()
    before = np.searchsorted(lost["begin"], launched[gaps["next"] - 1])
    after = np.searchsorted(lost["begin"], launched[gaps["next"]])
    return float(gaps["us"][after > before].sum() / (rank.stop - rank.start or np.nan))


def _graphs(rank: Rank) -> list[Finding]:
    """Replays of a graph that have fewer kernels than other replays of the same graph.

    Replays with the same kernels are replays of one graph. A replay unlike all others is compared with those that
    share at least half of its kernels' names.
    """
    graphs = rank.operators.index[matching(rank.operators["name"], "GraphLaunch")]
    work = rank.gpu_work[rank.gpu_work["call"].isin(graphs)]
    replays = Counter(frozenset(Counter(names).items()) for _, names in work.groupby("call")["name"])
    groups: list[tuple[Counter, list[Counter]]] = []  # the most kernels of each name, and the replays
    for kernels, times in sorted(replays.items(), key=lambda item: (item[1] == 1, -len(item[0]))):
        replay = Counter(dict(kernels))
        for most, alike in groups:
            if times == 1 and len(replay.keys() & most.keys()) >= COMMON_NAMES * len(replay.keys() | most.keys()):
                alike.append(replay)
                most |= replay
                break
        else:
            groups.append((replay.copy(), [replay] * times))
    lost = sum((most - replay for most, alike in groups for replay in alike), Counter())
    share = lost.total() / max(1, lost.total() + len(work))
    what = "kernels missing in replays of a graph that other replays have"
    return [Finding(what, lost.total(), str(next(iter(lost), ""))[:80], ALL_OF_GPU, share)]


def _overlaps(rank: Rank) -> list[Finding]:
    """Work that overlaps on one stream, unless one call launched both, and calls that cross in one thread."""
    work = rank.gpu_work.sort_values(["pid", "stream", "begin"], kind="stable")
    before = work[["pid", "stream", "correlation", "end"]].shift()
    same = (work["pid"] == before["pid"]) & (work["stream"] == before["stream"])
    same &= work["correlation"] != before["correlation"]  # branches of a graph run at the same time
    both = work[same & (work["begin"] < before["end"] - OVERLAP_US)]
    host = rank.operators[["name", "begin", "end"]].assign(thread=rank.operators.groupby(["pid", "tid"]).ngroup())
    host = host.iloc[np.lexsort((-host["end"], host["begin"], host["thread"]))]
    same, latest = host["thread"] == host["thread"].shift(), host.groupby("thread")["end"].cummax().shift()
    cut = pandas.Series(False, host.index)
    for end in (host["end"].shift(), latest):  # of the call before, and of the one before that ended last
        cut |= same & (host["begin"] < end - CLOCKS_US) & (host["end"] > end + CLOCKS_US)
    return [
        _row("kernels of one stream that overlap: a step of a clock", both, ALL_OF_GPU),
        _row("calls of one thread that overlap, neither inside of the other", host[cut], OF_HOST),
    ]


def _clocks(rank: Rank) -> list[Finding]:
    """Events far from all others, and a GPU whose clock is ahead of the host's."""
    work, columns = rank.gpu_work, ["name", "begin", "end"]
    events = pandas.concat([rank.operators[columns], work[columns]]).sort_values("begin", ignore_index=True)
    pauses = (events["begin"] - events["end"].cummax().shift()).fillna(0.0)
    place = int(pauses.argmax()) if len(events) else 0
    far = pauses.max() > max(STRAY_PAUSE_US, STRAY_PAUSE_SHARE * (events["end"].max() - events["begin"].min()))
    few = min(place, len(events) - place) <= max(1, 0.01 * len(events))
    stray = events[:0]
    if far and few:
        stray = events[:place] if place < len(events) / 2 else events[place:]
    delays = (work["begin"] - work["call_begin"] - work["call_duration"]).dropna()
    ahead = work[:0]
    if len(delays) >= FEWEST_KERNELS and rank.single_gpu and delays.min() > LONGEST_QUEUED_US:
        gaps = find_gaps(rank.kernels)
        if (gaps["us"] > KERNEL_WAIT_US).any():  # so the queue was sometimes empty: no kernel can have waited that long
            ahead = work
    two_clocks = f"kernels that begin over {LONGEST_QUEUED_US / 1e3:g} ms after their launch, all: two clocks"
    return [
        _row("events a minute or more away from all others: a wrong time", stray, f"{ALL_OF_GPU}, {OF_HOST}", 1.0),
        _row(two_clocks, ahead, DELAYS, 1.0),
    ]


def _no_durations(rank: Rank) -> list[Finding]:
    """Kernels that old versions of PyTorch rounded down to no duration, where all times are whole microseconds."""
    work = rank.gpu_work
    whole = bool((work["begin"] % 1 == 0).all() and (work["duration"] % 1 == 0).all())
    timeless = work[work["duration"] == 0] if whole else work[:0]
    misleads = 1.0 if len(work) > FEWEST_KERNELS and len(timeless) > 0.5 * len(work) else 0.0
    what = "kernels of no duration, all times being whole microseconds"
    return [_row(what, timeless, "kernels, idle, gaps", misleads)]


def _warnings(rank: Rank) -> list[Finding]:
    """Kineto writes its warnings and errors under these names."""
    rows: list[Finding] = []
    for name in ("ERROR", "WARNING"):
        texts = rank.recording.meta.get(name)
        texts = texts if isinstance(texts, list) else [texts] if texts else []
        tables = f"{ALL_OF_GPU}, {OF_HOST}"
        rows += [Finding("the profiler's own warning", 1, str(text)[:200], tables) for text in texts]
    return rows
