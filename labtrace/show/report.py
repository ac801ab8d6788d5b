"""A report on one trace or several: what bounds each and what to try in sentences, then the figures that show it.

Of two traces it says first what changed from the one to the other, and of several ranks which one the others wait for.
"""

from __future__ import annotations

import contextlib
import copy
import html
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError
from labtrace.findings.difference import Comparison, comparison, step_walls
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.show.bars import NUMBER, Traces, by_name, merged, readable, some_ranks, stamp_text
from labtrace.show.most_time import most_time
from labtrace.show.page import Part, write_page
from labtrace.show.style import in_words, shortened
from labtrace.show.views import trace
from labtrace.tables import processor
from labtrace.tables.communication import EVEN
from labtrace.tables.communication import in_words as ranks_in_words
from labtrace.trace import Trace

# Views. Those in detail are drawn of one rank only, the timeline of two.
OVERVIEWS = ("timeline", "temporal")
DETAILS = ("steps", "gaps", "kernels", "achieved", "idle", "ranges", "operators")
SUMS = ("kernels", "achieved", "operators")  # of the whole recording: two are compared by a typical step of each
OF_PROCESSORS = ("processor", "timeline", "achieved", "ranges", "operators")  # views of recordings without a GPU
# As data
TABLES = ("audit summary remedies processor temporal idle gaps kernels communication ranges operators achieved").split()
ROWS = 20  # of each rank in each of these tables
CHANGES = {  # the tables of a comparison
    "steps": "The steps",
    "kind": "The work of a step, by kind",
    "operator": "What changed in a step, by operator",
    "kernel": "What changed in a step, by kernel",
    "host call": "What changed in the host's calls of CUDA in a step",
}
MOST_CHANGES = 12  # that are told
LEAST_SHARE = 0.01  # of the time: what costs or changes less is not told
NAME = 64  # characters of a kernel's name in a table
MOST_NAMED = 4  # kernels and gaps
MOST_TIME = "What took most time, by name (share: of the kernels' time or of the idle time)"


def report_text(traces: Traces) -> str:
    """The sentences and the comparison with which the page of `trace_report` begins, as text.

    Args:
        traces: a trace, or traces by name.
    """
    return "\n".join(part.plain() for part in _beginning(by_name(traces)) if isinstance(part, Part))


def trace_report(traces: Traces, path: Path | str) -> Path:
    """Writes an HTML page that opens without a network: findings, verdict and remedies in words, and the figures.

    A view that a trace does not allow, such as those of a GPU for a trace recorded on a CPU, is named at the end, with
    its error.

    Args:
        traces: a trace, or traces by name. Two are compared.
        path: of the page.

    Raises:
        LabError: the page cannot be written.
    """
    traces = by_name(traces)
    stamps = dict.fromkeys(html.escape(_whose(traces, name) + stamp_text(each)) for name, each in traces.items())
    parts = [f"<small>{'; '.join(stamps)}</small>", *_beginning(traces)]
    for name, each in traces.items():
        parts += _advice(_whose(traces, name), each)
    parts += _figures(traces)
    shown = [part.html() if isinstance(part, Part) else part for part in parts]
    heading = (" → " if len(traces) == 2 else ", ").join(traces)
    return write_page(path, "Trace report", html.escape(heading), shown)


def report_data(traces: Traces) -> dict[str, Any]:
    """The report as data, for scripts: by the trace's name its stamp, and the first rows of each table.

    A table that the trace does not allow is a text, its error. The second of two traces also has the comparison with
    the first. All times are in microseconds, and remedies and costs are SIMULATED.

    Args:
        traces: a trace, or traces by name.
    """
    found: dict[str, Any] = {}
    traces = by_name(traces)
    for name, each in traces.items():
        found[name] = {"stamp": each.stamp}
        for table in TABLES:
            try:
                with warnings.catch_warnings(action="ignore", category=ReplayWarning):  # the summary says it, too
                    found[name][table] = _records(getattr(each, table)().groupby("rank", sort=False))
            except LabError as error:
                found[name][table] = str(error)
    if comparison := _comparison(traces):
        tables = {by: _records(table) for by, table in comparison.tables.items()}
        found[name]["comparison"] = {"words": comparison.words, **tables}
    return found


def _records(table: Any) -> Any:
    return json.loads(table.head(ROWS).to_json(orient="records"))


def _comparison(traces: Mapping[str, Trace]) -> Comparison | None:
    """Of two traces, the second compared with the first."""
    if len(traces) != 2:
        return None
    before, after = traces.values()
    try:
        return comparison(before.ranks, after.ranks)
    except LabError as error:
        return Comparison(_without_paths(error, traces), {})


def _whose(traces: Mapping[str, Trace], name: str) -> str:
    """Begins a sentence on a trace that is not the only one."""
    return f"{name}: " if len(traces) > 1 else ""


def _beginning(traces: Mapping[str, Trace]) -> Iterator[Part | str | go.Figure]:
    """What the terminal shows, too, and the figure of the ranks."""
    words, tables = _comparison(traces) or ("", {})
    if words:
        yield Part(words)
    for name, each in traces.items():
        yield from _verdicts(_whose(traces, name), each)
        yield from _findings(_whose(traces, name), each)
    for by, table in tables.items():
        if "change" in table:
            least = LEAST_SHARE * table[["before_us", "after_us"]].sum().max()
            table = table[(table["change"] != "same") & (table["difference_us"].abs() > least)].head(MOST_CHANGES)
            table = table.assign(**{by: [shortened(name, NAME) for name in table[by]]})
        yield Part(CHANGES[by], table=table) if len(table) else Part(f"{CHANGES[by]}: nothing.")
    for name, each in traces.items():
        yield from _most_time(_whose(traces, name), each)
        yield from _between_ranks(_whose(traces, name), name, each)


def _findings(whose: str, each: Trace) -> Iterator[Part]:
    """Those of the audit that can mislead, and which tables they spoil."""
    table = each.audit().query("tables != ''").rename(columns={"tables": "do not trust"})
    if len(table):
        table = table.groupby(["what", "do not trust"], sort=False)["events"].sum().reset_index()
        yield Part(f"{whose}What this recording cannot tell", table=table)


def _between_ranks(whose: str, name: str, each: Trace) -> Iterator[Part | str | go.Figure]:
    """How long each rank of a trace waited: a figure, and a table with a line for each."""
    with contextlib.suppress(LabError):
        table = each.communication()
        if len(table) > 1 and table["communication_us"].sum() > 0:
            figure = trace({name: each}, "communication")
            yield from (figure, in_words(figure))
            shown = table[["rank", "wall_us", "compute_us", "sending_us", "waited_us"]].rename(
                columns={"rank": "of rank"}
            )
            yield Part(f"{whose}The ranks", table=shown.assign(waited_of_wall=table["waited_us"] / table["wall_us"]))


def _verdicts(whose: str, each: Trace) -> Iterator[Part]:
    """Who waited for whom, and what bounds the ranks: a sentence for all whose verdicts differ in numbers alone.

    The reasons follow if there is only one recording or no verdict.
    """
    text = ""
    with contextlib.suppress(LabError):  # the verdict says why
        text = ranks_in_words(each.communication())
    if text and text != EVEN:
        yield Part(f"{whose}{text}")
    try:
        table = each.summary()
    except LabError as error:
        yield Part(whose + _without_paths(error, {"": each}))
        return
    several = len(each.ranks) > 1
    table["why"] = table["why"].where((table["first_remedy"] == "") | (not whose and not several), "")
    for _, rows in table.groupby((table["verdict"] + table["why"]).str.replace(NUMBER, "#", regex=True), sort=False):
        named = f"{some_ranks(rows['rank'], each)}: " if several else ""
        yield Part(f"{whose}{named}{merged(rows['verdict'])}", merged(rows["why"]))
    if text == EVEN:
        yield Part(f"{whose}{EVEN}")


def _most_time(whose: str, each: Trace) -> Iterator[Part]:
    """The kernels that took most of the kernels' time, and what the host did in most of the idle time.

    Of several ranks those of one, and how many times as long they took as in the others, in the median.
    """
    with contextlib.suppress(LabError):  # recorded without a GPU
        number = min(_some_ranks("", each, 1)[1].ranks)
        rank, found, several = each.ranks[number], most_time(each, number), len(each.ranks) > 1
        found = found[found["us"] >= LEAST_SHARE * (rank.stop - rank.start)].groupby("what").head(MOST_NAMED)
        found["name"] = [shortened(name, NAME) for name in found["name"]]
        found["times_a_step"] = found["count"] / (len(rank.steps) or float("nan"))
        columns = ["what", "name", "share", "times_a_step", "mean_us", "max_us", "times_the_others"]
        of_rank = f"Rank {number}: " if several else ""
        yield Part(f"{whose}{of_rank}{MOST_TIME}", table=found[columns[: len(columns) - 1 + several]])


def _advice(whose: str, each: Trace) -> Iterator[Part]:
    """The causes of the wall time, what each is worth, and what to try: a table with a row for each, of all ranks."""
    on_cpu = all(rank.on_cpu for rank in each.ranks.values())
    try:
        with warnings.catch_warnings(action="ignore", category=ReplayWarning):
            table = each.processor() if on_cpu else each.remedies()
    except LabError:  # the verdict says why
        return
    table = table[table["share_of_wall"] >= LEAST_SHARE].rename(columns={"kind": "cause"})
    # Work cannot go altogether: what half of it is worth.
    work = table["times_faster_at_half"].notna() & ~table["cause"].isin([processor.DATA, processor.PYTHON])
    table["cause"] += work.map({True: ", in half the time", False: ""})
    table["times_faster"] = table["times_faster_at_half"].where(work, table["times_faster_at_most"])
    heading = f"{whose}What to try, and how many times faster at most ({'Amdahl’s law' if on_cpu else 'SIMULATED'})"
    columns = ["cause", "share_of_wall", "times_faster", "try"]
    if len(each.ranks) > 1:
        table = table.sort_values("times_faster", ascending=False, kind="stable")
    rows = [
        {"ranks": some_ranks(alike["rank"], each), **readable(alike[columns]).apply(merged)}
        for _, alike in table.groupby(["cause", "try"], sort=False)
    ]
    if rows:
        yield Part(heading, table=pandas.DataFrame(rows).iloc[:, int(len(each.ranks) == 1) :])


def _figures(traces: Mapping[str, Trace]) -> Iterator[str | go.Figure]:
    """The views of all traces side by side, and why some are not there."""
    in_detail, errors = dict(_some_ranks(*each, 1) for each in traces.items()), []
    of_gpus = any(not rank.on_cpu for each in traces.values() for rank in each.ranks.values())
    for view in [*OVERVIEWS, *DETAILS] if of_gpus else OF_PROCESSORS:
        shown = in_detail if view in DETAILS else traces
        try:
            if view == "timeline":
                shown = _typical_step(dict(_some_ranks(*each, 2) for each in traces.items()))
            elif len(traces) == 2 and view in SUMS:
                shown = _typical_step(shown)
            figure = trace(shown, view)
            yield from (figure, in_words(figure))
        except LabError as error:
            errors.append(f"<li>{html.escape(_without_paths(error, traces))}</li>")
    if errors:
        yield f"<h2>Not shown</h2><ul>{''.join(dict.fromkeys(errors))}</ul>"


def _some_ranks(name: str, each: Trace, most: int) -> tuple[str, Trace]:
    """A trace of one rank or two: the straggler or, if nobody knows it, the first, and the one that waited longest."""
    if len(each.ranks) <= most:
        return name, each
    one, numbers = copy.copy(each), sorted(each.ranks)
    with contextlib.suppress(LabError, ValueError):  # a GPU's work is missing, or the straggler is NaN
        table = each.communication().set_index("rank")
        numbers = [int(table["straggler"].iloc[0]), int(table["waited_us"].idxmax())]
    one.ranks = {number: each.ranks[number] for number in numbers[:most]}
    return name if most > 1 else f"{name}, rank {numbers[0]}", one


def _without_paths(error: LabError, traces: Mapping[str, Trace]) -> str:
    """An error in words, with its file's name alone."""
    text = str(error)
    for rank in (rank for each in traces.values() for rank in each.ranks.values()):
        text = text.replace(str(rank.recording.file), rank.recording.file.name)
    return text


def _typical_step(traces: Mapping[str, Trace]) -> dict[str, Trace]:
    """Of each trace the step with the median wall time, or the whole trace if no step is marked."""
    parts = dict(traces)
    for name, each in traces.items():
        with contextlib.suppress(LabError, IndexError):  # a rank lacks this step, or no step is marked
            steps = step_walls(next(iter(each.ranks.values()))).sort_values().index
            parts[name] = each.steps(int(steps[(len(steps) - 1) // 2]))
    return parts
