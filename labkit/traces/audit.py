"""What is wrong with a recording, and which tables cannot be trusted for it."""

from __future__ import annotations

import pandas

from labkit.traces.dialects import LAUNCHES
from labkit.traces.rank import SINGLE_LAUNCHES, Rank, named

CLOCKS_US = 1.0  # clocks of host and GPU, and rounded times, may differ by so much
DELAYS = "idle, gaps, launches, queue, summary"
LAUNCHED = f"{DELAYS}, temporal by step, concurrency by range, operators (GPU), what_if"
ALL_OF_GPU = "temporal, idle, gaps, kernels, launches, queue, concurrency, summary, communication"
OF_HOST = "operators, ranges, gaps"


def audit(rank: Rank) -> pandas.DataFrame:
    """One row a finding, as `labkit.Trace.audit` explains."""
    found = [*_left_out(rank), *_launches(rank), *_overlaps(rank), *_resolution(rank), *_warnings(rank)]
    rows = [row for row in found if row[1] > 0]
    return pandas.DataFrame(rows, columns=["what", "events", "example", "tables"])


Row = tuple[str, int, str, str]


def _row(what: str, events: pandas.DataFrame, tables: str) -> Row:
    return what, len(events), str(events["name"].iloc[0])[:80] if len(events) else "", tables


def _left_out(rank: Rank) -> list[Row]:
    tables = f"{ALL_OF_GPU}, {OF_HOST}"
    return [(f"{reason}: left out", many, "", tables) for reason, many in rank.recording.left_out.items()]


def _launches(rank: Rank) -> list[Row]:
    work, calls = rank.gpu_work, rank.calls
    if work.empty:
        return []
    launching = calls[named(calls["name"], LAUNCHES)]
    missing = launching[~launching["correlation"].isin(work["correlation"])]
    early = work[work["begin"] < work["call_begin"] - CLOCKS_US]
    repeated = calls[calls["correlation"].duplicated(keep=False) & calls["correlation"].isin(work["correlation"])]
    single = calls["correlation"][named(calls["name"], SINGLE_LAUNCHES)]
    again = work[work["correlation"].isin(single) & work["correlation"].duplicated()]
    return [
        _row("launches whose kernel is missing: dropped, or recorded too late", missing, f"{ALL_OF_GPU}, what_if"),
        _row("kernels, copies and memsets whose launch is missing", work[work["call"] < 0], LAUNCHED),
        _row("kernels that begin before their launch: a step of a clock", early, LAUNCHED),
        _row("calls that share their correlation with another call", repeated, LAUNCHED),
        _row("kernels that share the correlation of a call that launches one", again, LAUNCHED),
    ]


def _overlaps(rank: Rank) -> list[Row]:
    """Work that overlaps on one stream, unless one call launched both, and calls that cross in one thread."""
    work = rank.gpu_work.sort_values(["pid", "stream", "begin"], kind="stable")
    before = work.shift()
    same = (work["pid"] == before["pid"]) & (work["stream"] == before["stream"])
    same &= work["correlation"] != before["correlation"]  # branches of a graph run at the same time
    both = work[same & (work["begin"] < before["end"] - CLOCKS_US)]
    host = rank.operators.assign(shorter=-rank.operators["duration"])
    host = host.assign(thread=pandas.factorize(pandas.MultiIndex.from_frame(host[["pid", "tid"]]))[0])
    host = host.sort_values(["thread", "begin", "shorter"], kind="stable")
    before, latest = host.shift(), host.groupby("thread")["end"].cummax().shift()
    same = host["thread"] == before["thread"]
    cut = pandas.Series(False, host.index)
    for end in (before["end"], latest):  # of the call before, and of the one before that ended last
        cut |= same & (host["begin"] < end - CLOCKS_US) & (host["end"] > end + CLOCKS_US)
    return [
        _row("kernels of one stream that overlap: a step of a clock", both, ALL_OF_GPU),
        _row("calls of one thread that overlap, neither inside of the other", host[cut], OF_HOST),
    ]


def _resolution(rank: Rank) -> list[Row]:
    work = rank.gpu_work
    whole = (work["begin"] % 1 == 0).all() and (work["duration"] % 1 == 0).all()
    timeless = work[work["duration"] == 0] if whole else work[:0]
    return [_row("kernels of no duration, all times being whole microseconds", timeless, "kernels, idle, gaps")]


def _warnings(rank: Rank) -> list[Row]:
    """Kineto writes its warnings and errors under these names."""
    rows: list[Row] = []
    for name in ("ERROR", "WARNING"):
        texts = rank.recording.meta.get(name)
        texts = texts if isinstance(texts, list) else [texts] if texts else []
        rows += [("the profiler's own warning", 1, str(text)[:200], f"{ALL_OF_GPU}, {OF_HOST}") for text in texts]
    return rows
