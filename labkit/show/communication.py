"""The view of a trace that divides each rank's time into compute and communication."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from labkit.show.recordings import Looks, Traces, bars, finish, joined, repeated
from labkit.show.style import KERNEL, KINDS, UNUSED, escaped
from labkit.trace import Trace

HIDDEN = f"rgba{(*hex_to_rgb(KINDS['communication']), 0.4)}"
PARTS: Looks = {
    "compute": ("compute and copies alone", KERNEL, ""),
    "hidden": ("communication, hidden under them", HIDDEN, "/"),
    "exposed": ("communication, exposed", KINDS["communication"], ""),
    "neither": ("neither", UNUSED, ""),
}
UNKNOWN = "communication cannot be known"


def communication(traces: Traces) -> go.Figure:
    """The wall time of each rank: compute, communication hidden under it, exposed communication, and neither.

    If there are several ranks, a note names the straggler: the rank that the others waited for. The view works for
    traces recorded on a CPU, too.
    """
    table = joined(traces, Trace.communication)
    unknown = table["communication_us"].isna().map({True: f"<br>({UNKNOWN})", False: ""})
    exposed, hidden = table["exposed_us"], table["hidden_us"]
    parts = {
        "compute": table["compute_us"] - hidden.fillna(0),
        "hidden": hidden,
        "exposed": exposed,
        "neither": table["wall_us"] - table["compute_us"] - exposed.fillna(0),
    }
    drawn = repeated(
        table.assign(place=table["recording"].map(escaped) + unknown),
        "series",
        {part: us / 1e3 for part, us in parts.items()},
    )
    late = table["recording"][table["rank"] == table["straggler"]]
    note = "; ".join(f"{name}: the others waited for this rank" for name in late)
    figure = bars(drawn, PARTS, f"milliseconds. {escaped(note)}".rstrip(". "))
    title = "Communication between ranks: hidden under other work, or exposed"
    return finish(figure, title, traces, table, note)
