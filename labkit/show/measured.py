"""How far the simulator is from steps that others measured: a figure."""

from __future__ import annotations

import pandas
import plotly.express as px
import plotly.graph_objects as go

from labkit.simulate.measured_steps import error_range, measured
from labtrace.show.style import COLOURS, UNUSED, WALL, mark_simulated


def measured_figure(table: pandas.DataFrame | None = None) -> go.Figure:
    """SIMULATED over measured time of each step that others measured, as a point. 1 is right.

    A row for each device and kind of step. The grey band is `labkit.simulate.error_range`.

    Args:
        table: from `labkit.simulate.measured`, which is the default.
    """
    table = measured() if table is None else table
    rows = table[table["seen"] != "fitted"].sort_values(["kind", "device"], ascending=False)
    label, place = "SIMULATED over measured time (log)", rows["kind"] + ", " + rows["device"]
    figure = px.scatter(
        rows.assign(**{label: rows["ratio"], "step": place}),
        x=label,
        y="step",
        color="decides",
        symbol="seen",
        color_discrete_map={"GPU": COLOURS["G"], "host": COLOURS["D"]},
        hover_data=["what", "measured_ms", "SIMULATED_ms"],
        log_x=True,
    )
    figure.update_traces(marker=dict(size=9, line=dict(color=WALL, width=1)))
    low, high = error_range()
    figure.add_vrect(x0=low, x1=high, fillcolor=UNUSED, opacity=0.25, line_width=0, layer="below")
    figure.add_vline(x=1, line=dict(color=WALL, width=1))
    plain = rows["ratio"][~rows["kind"].str.startswith("autocast")]
    words = (
        f"{len(rows)} steps that others measured. Without autocast the median of SIMULATED over measured is "
        f"{plain.median():.2f}, and {plain.between(low, high).mean():.0%} lie in the grey band, {low} to {high}."
    )
    figure.update_xaxes(tickvals=[0.4, 0.5, 0.6, 0.8, 1, 1.2, 1.5, 2], range=[-0.47, 0.33])
    order = place.drop_duplicates()
    figure.update_yaxes(categoryorder="array", categoryarray=order, title="", automargin=True, dtick=1)
    numbers = rows[["kind", "device", "what", "measured_ms", "SIMULATED_ms", "ratio"]].to_html(index=False, border=0)
    figure.update_layout(
        title=f"SIMULATED times beside measured ones: median {plain.median():.2f} without autocast",
        height=190 + 26 * len(order),
        legend_title="decides, seen",
        meta={"text": words, "table": numbers},
    )
    return mark_simulated(figure)
