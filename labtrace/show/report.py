"""A page about one trace or several: its bottleneck and what to try in sentences, then the figures that show it."""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas
import plotly.graph_objects as go

from labtrace.communication import in_words as ranks_in_words
from labtrace.errors import LabkitError
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.show.bars import Traces, by_name, readable
from labtrace.show.page import write_page
from labtrace.show.style import in_words
from labtrace.show.views import trace
from labtrace.trace import Trace

SHOWN = ("temporal", "steps", "timeline", "gaps", "path", "kernels", "achieved", "idle", "ranges", "operators")  # views
OF_PROCESSORS = ("processor", "timeline", "achieved", "ranges", "operators")  # views of recordings without a GPU
# As data
TABLES = (
    "audit summary remedies temporal idle gaps kernels critical_path communication ranges operators achieved".split()
)
ROWS = 20  # of each rank in each of these tables


def trace_report(traces: Traces, path: Path | str) -> Path:
    """Writes an HTML page that opens without a network: findings, verdict and remedies in words, and the figures.

    A view that a trace does not allow, such as those of a GPU for a trace recorded on a CPU, is named at the end, with
    its error.

    Args:
        traces: a trace, or traces by name.
        path: of the page.

    Raises:
        LabkitError: the page cannot be written.
    """
    traces = by_name(traces)
    parts: list[str | go.Figure] = []
    for name, each in traces.items():
        heading = f"<h2>{html.escape(name)}</h2>" if len(traces) > 1 else ""
        parts += [heading, *_in_sentences(each)]
    errors = []
    of_gpus = any(not rank.on_cpu for each in traces.values() for rank in each.ranks.values())
    for view in SHOWN if of_gpus else OF_PROCESSORS:
        try:
            figure = _typical_step(traces) if view == "timeline" else trace(traces, view)
            parts += [figure, in_words(figure)]
        except LabkitError as error:
            errors.append(f"<li>{html.escape(_without_paths(error, traces.values()))}</li>")
    if errors:
        parts.append(f"<h2>Not shown</h2><ul>{''.join(dict.fromkeys(errors))}</ul>")
    return write_page(path, "Trace report", html.escape(", ".join(traces)), parts)


def report_data(traces: Traces) -> dict[str, Any]:
    """The report as data, for scripts: by the trace's name its stamp, and the first rows of each table.

    A table that the trace does not allow is a text, its error. All times are in microseconds, and remedies and costs
    are SIMULATED.

    Args:
        traces: a trace, or traces by name.
    """
    found: dict[str, Any] = {}
    for name, each in by_name(traces).items():
        found[name] = {"stamp": each.stamp}
        for table in TABLES:
            try:
                with warnings.catch_warnings(action="ignore", category=ReplayWarning):  # the summary says it, too
                    found[name][table] = json.loads(_first_rows(getattr(each, table)()))
            except LabkitError as error:
                found[name][table] = str(error)
    return found


def _first_rows(table: pandas.DataFrame) -> str:
    return table.groupby("rank", sort=False).head(ROWS).to_json(orient="records")


def _in_sentences(each: Trace) -> Iterator[str]:
    """Findings of the audit, the verdict, and the remedies with their advice."""
    findings = [
        f"<li>{html.escape(row.what)} ({row.events:,}): do not trust {html.escape(row.tables)}</li>"
        for row in each.audit().itertuples()
        if row.tables
    ]
    if findings:
        yield f'<div class="audit"><p><b>What this recording cannot tell:</b></p><ul>{"".join(findings)}</ul></div>'
    yield from _between_ranks(each)
    try:
        for row in each.summary().itertuples():
            rank = f"Rank {row.rank}: " if len(each.ranks) > 1 else ""
            yield f"<p>{rank}<b>{html.escape(row.verdict)}</b> {html.escape(row.why)}</p>"
        yield from _on_processors(each) if all(rank.on_cpu for rank in each.ranks.values()) else _remedies(each)
    except LabkitError as error:
        yield f"<p>{html.escape(_without_paths(error, [each]))}</p>"


def _remedies(each: Trace) -> Iterator[str]:
    """The causes of the wall time, what each is worth, and the advice, as a table."""
    with warnings.catch_warnings(action="ignore", category=ReplayWarning):
        remedies = each.remedies()
    if len(each.ranks) > 1:
        remedies["cause"] = "rank " + remedies["rank"].astype(str) + ": " + remedies["cause"]
    half = remedies.pop("times_faster_at_half")
    remedies["cause"] = remedies["cause"].where(half.isna(), remedies["cause"] + ", in half the time")
    remedies["times_faster_at_most"] = half.fillna(remedies["times_faster_at_most"])
    shown = readable(remedies.drop(columns="us"))
    yield "<h3>What to try, and how many times faster at most (SIMULATED)</h3>" + shown.to_html(index=False, border=0)


def _on_processors(each: Trace) -> Iterator[str]:
    """The kinds of work of a step without a GPU, as a table."""
    shown = readable(each.processor().drop(columns="us"))
    yield "<h3>What to try, and what it is worth (Amdahl's law)</h3>" + shown.to_html(index=False, border=0)


def _without_paths(error: LabkitError, traces: Iterable[Trace]) -> str:
    """An error in words, without the file if there is only one, and else with its name: the page has its own title."""
    files, said = [rank.recording.file for each in traces for rank in each.ranks.values()], str(error)
    for file in files:
        said = said.replace(f"{file}: ", "" if len(files) == 1 else f"{file.name}: ")
    return f"{said[0].upper()}{said[1:]}"


def _between_ranks(each: Trace) -> Iterator[str]:
    """Who waited for whom, in a sentence and a table with a line for each rank."""
    try:
        table = each.communication()
    except LabkitError:  # the verdict says why
        return
    if said := ranks_in_words(table):
        yield f"<p><b>{said}</b></p>"
    if len(table) > 1:
        shown = table[["rank", "wall_us", "compute_us", "waited_us", "sending_us", "exposed_us", "share_of_wall"]]
        yield readable(shown.rename(columns={"rank": "of rank"})).to_html(index=False, border=0)


def _typical_step(traces: dict[str, Trace]) -> go.Figure:
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
