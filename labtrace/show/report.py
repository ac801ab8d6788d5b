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
from typing import Any, NamedTuple

import pandas
import plotly.graph_objects as go

from labtrace import processor
from labtrace.communication import in_words as ranks_in_words
from labtrace.difference import Comparison, compare
from labtrace.errors import LabkitError
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.show.bars import Traces, by_name, readable
from labtrace.show.page import write_page
from labtrace.show.style import in_words, shortened
from labtrace.show.views import trace
from labtrace.trace import Trace

# Views, of which those in detail are drawn for one rank of several.
OVERVIEWS, DETAILS = (
    ("temporal", "steps", "timeline"),
    ("gaps", "path", "kernels", "achieved", "idle", "ranges", "operators"),
)
OF_PROCESSORS = ("processor", "timeline", "achieved", "ranges", "operators")  # views of recordings without a GPU
# As data
TABLES = (
    "audit summary remedies processor temporal idle gaps kernels critical_path communication ranges operators achieved"
).split()
ROWS = 20  # of each rank in each of these tables
MOST_CHANGES = 12  # that are told
LEAST_SHARE = 0.01  # of the wall time: a cause that costs less is not told
NAME = 64  # characters of a kernel's name in a table


class Part(NamedTuple):
    """A paragraph or a table, for the terminal and for the page.

    Attributes:
        whose: the recording or rank, or "" if there is only one.
        strong: the sentence to read first, or the heading of a table.
        text: further sentences.
        table: under its heading.
    """

    whose: str
    strong: str
    text: str = ""
    table: pandas.DataFrame | None = None

    def plain(self) -> str:
        """For the terminal."""
        said = f"{self.whose}: {self.strong} {self.text}".removeprefix(": ").rstrip()
        if self.table is None:
            return said
        shown = readable(self.table)
        names = shown.iloc[:, 0]
        return (
            f"\n{said}\n{shown.assign(**{names.name: names.str.ljust(names.str.len().max())}).to_string(index=False)}"
        )

    def html(self) -> str:
        """For the page."""
        whose, strong, text = map(html.escape, (self.whose and f"{self.whose}: ", self.strong, self.text))
        if self.table is None:
            return f"<p>{whose}<b>{strong}</b> {text}</p>"
        return f"<h2>{whose}{strong}</h2>{readable(self.table).to_html(index=False, border=0)}"


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
        LabkitError: the page cannot be written.
    """
    traces = by_name(traces)
    parts = [*_beginning(traces), *_advice(traces), *_figures(traces)]
    shown = [part.html() if isinstance(part, Part) else part for part in parts]
    return write_page(
        path, "Trace report", html.escape(" → ".join(traces) if len(traces) == 2 else ", ".join(traces)), shown
    )


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
            except LabkitError as error:
                found[name][table] = str(error)
    if comparison := _comparison(traces):
        tables = {"steps": comparison.steps, **comparison.tables}
        data = {by: _records(table) for by, table in tables.items()}
        found[name]["comparison"] = {"words": comparison.words, **data}
    return found


def _records(table: Any) -> Any:
    return json.loads(table.head(ROWS).to_json(orient="records"))


def _comparison(traces: Mapping[str, Trace]) -> Comparison | None:
    """Of two traces, the second compared with the first."""
    if len(traces) != 2:
        return None
    before, after = traces.values()
    try:
        return compare(before.ranks, after.ranks)
    except LabkitError as error:
        return Comparison(_without_paths(error, traces), pandas.DataFrame(), {})


def _beginning(traces: Mapping[str, Trace]) -> Iterator[Part | str | go.Figure]:
    """What the terminal shows, too, and the findings of the audit and the figure of the ranks."""
    comparison = _comparison(traces)
    if comparison:
        yield Part("", comparison.words)
    for name, each in traces.items():
        whose = name if len(traces) > 1 else ""
        yield from _findings(whose, each)
        yield from _between_ranks(whose, each)
        yield from _verdicts(whose, each)
    if comparison and len(comparison.steps):
        yield from _compared(comparison)


def _compared(comparison: Comparison) -> Iterator[Part]:
    """The tables of a comparison."""
    yield Part("", "The steps", table=comparison.steps.rename_axis("recording").reset_index())
    for by, table in comparison.tables.items():
        if by == "kind":
            yield Part(
                "", "The work of a step, by kind", table=table.drop(columns=["count_before", "count_after", "change"])
            )
            continue
        changed = table[table["change"] != "same"].head(MOST_CHANGES)
        heading = f"What changed in a step, by {by}"
        if changed.empty:
            yield Part("", heading + ":", f"nothing. Each {by} is called as often and takes as long as before.")
        else:
            yield Part("", heading, table=changed.assign(**{by: changed[by].map(lambda name: shortened(name, NAME))}))


def _findings(whose: str, each: Trace) -> Iterator[str]:
    """Those of the audit, in a box."""
    findings = [
        f"<li>{html.escape(row.what)} ({row.events:,}): do not trust {html.escape(row.tables)}</li>"
        for row in each.audit().itertuples()
        if row.tables
    ]
    if findings:
        heading = f"What {html.escape(whose) or 'this recording'} cannot tell:"
        yield f'<div class="audit"><p><b>{heading}</b></p><ul>{"".join(findings)}</ul></div>'


def _between_ranks(whose: str, each: Trace) -> Iterator[Part | go.Figure]:
    """Who waited for whom: in a sentence, a figure, and a table with a line for each rank."""
    try:
        table = each.communication()
    except LabkitError:  # the verdict says why
        return
    if said := ranks_in_words(table):
        yield Part(whose, said)
    if table["waited_us"].notna().any():
        yield trace({whose or "rank": each}, "waiting")
    if len(table) > 1:
        shown = table[["rank", "wall_us", "compute_us", "sending_us", "waited_us"]].rename(columns={"rank": "of rank"})
        shown["waited_of_wall"] = table["waited_us"] / table["wall_us"]
        yield Part(whose, "The ranks", table=shown)


def _verdicts(whose: str, each: Trace) -> Iterator[Part]:
    """What bounds each rank, and the reasons if there is only one recording or no verdict."""
    try:
        for row in each.summary().itertuples():
            names = [whose] * bool(whose) + [f"rank {row.rank}"] * (len(each.ranks) > 1)
            yield Part(", ".join(names), row.verdict, "" if names and row.first_remedy else row.why)
    except LabkitError as error:
        yield Part(whose, "", _without_paths(error, {whose: each}))


def _advice(traces: Mapping[str, Trace]) -> Iterator[Part]:
    """The causes of the wall time, what each is worth, and what to try, as a table."""
    for name, each in traces.items():
        on_cpu = all(rank.on_cpu for rank in each.ranks.values())
        heading = "What to try, and how many times faster at most"
        try:
            with warnings.catch_warnings(action="ignore", category=ReplayWarning):
                table = each.processor() if on_cpu else each.remedies()
        except LabkitError:  # the verdict says why
            continue
        table = table[table["share_of_wall"] >= LEAST_SHARE].rename(columns={"kind": "cause"})
        of_work = table["times_faster_at_half"].notna() & ~table["cause"].isin([processor.DATA, processor.PYTHON])
        cause = table["cause"].where(~of_work, table["cause"] + ", in half the time")
        faster = table["times_faster_at_half"].where(of_work, table["times_faster_at_most"])
        shown = pandas.DataFrame(
            {"cause": cause, "share_of_wall": table["share_of_wall"], "times_faster": faster, "try": table["try"]}
        )
        if len(each.ranks) > 1:
            shown.insert(0, "of rank", table["rank"])
        whose = name if len(traces) > 1 else ""
        if len(shown):
            yield Part(whose, f"{heading} ({'Amdahl’s law' if on_cpu else 'SIMULATED'})", table=shown)


def _figures(traces: Mapping[str, Trace]) -> Iterator[str | go.Figure]:
    """The views of all traces side by side, and why some are not there."""
    in_detail, errors = {name: one for each in traces.items() for name, one in _one_rank(*each)}, []
    of_gpus = any(not rank.on_cpu for each in traces.values() for rank in each.ranks.values())
    for view in [*OVERVIEWS, *DETAILS] if of_gpus else OF_PROCESSORS:
        shown = in_detail if view in DETAILS else traces
        try:
            figure = _typical_step(shown) if view == "timeline" else trace(shown, view)
            yield from (figure, in_words(figure))
        except LabkitError as error:
            errors.append(f"<li>{html.escape(_without_paths(error, traces))}</li>")
    if errors:
        yield f"<h2>Not shown</h2><ul>{''.join(dict.fromkeys(errors))}</ul>"


def _one_rank(name: str, each: Trace) -> Iterator[tuple[str, Trace]]:
    """A trace of one rank: of several the straggler or, if nobody knows it, the first."""
    if len(each.ranks) == 1:
        yield name, each
        return
    one, number = copy.copy(each), min(each.ranks)
    with contextlib.suppress(LabkitError, ValueError):  # a GPU's work is missing, or the straggler is NaN
        number = int(each.communication()["straggler"][0])
    one.ranks = {number: each.ranks[number]}
    yield f"{name}, rank {number}", one


def _without_paths(error: LabkitError, traces: Mapping[str, Trace]) -> str:
    """An error in words, without the file if there is only one, and else with its name: the page has its own title."""
    files, said = [rank.recording.file for each in traces.values() for rank in each.ranks.values()], str(error)
    for file in files:
        said = said.replace(f"{file}: ", "" if len(files) == 1 else f"{file.name}: ")
    return f"{said[0].upper()}{said[1:]}"


def _typical_step(traces: Mapping[str, Trace]) -> go.Figure:
    """The timeline of each trace's step with the median wall time, or of the whole trace if no step is marked."""
    parts = {}
    for name, each in traces.items():
        try:
            first = next(iter(each.ranks.values()))
            on_cpu = first.steps.assign(us=first.steps["duration"])
            steps = on_cpu if first.on_cpu else each.temporal(by="step").query("part == 'wall'")
            steps = steps.sort_values("us")
            parts[name] = each.steps(int(steps["step"].iloc[(len(steps) - 1) // 2]))
        except (LabkitError, IndexError):  # no step is marked
            parts[name] = each
    return trace(parts, "timeline")
