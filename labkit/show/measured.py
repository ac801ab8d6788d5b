"""How far the simulator is from steps that others measured: a figure."""

from __future__ import annotations

import pandas
import plotly.express as px
import plotly.graph_objects as go

from labkit.simulate.measured_steps import error_range, measured
from labtrace.show.style import COLOURS, UNUSED, WALL, mark_simulated


def measured_figure(table: pandas.DataFrame | None = None) -> go.Figure:
    """SIMULATED over measured time of each step that others measured, as a point. 1 is right.

    The grey band is `labkit.simulate.error_range`.

    Args:
        table: from `labkit.simulate.measured`, which is the default.
    """
    table = measured() if table is None else table
    rows = table.assign(step=table["what"] + ", " + table["device"]).sort_values("ratio", ascending=False)
    label = "SIMULATED over measured time (log)"
    figure = px.scatter(
        rows.rename(columns={"ratio": label}),
        x=label,
        y="step",
        color="device",
        symbol="device",
        color_discrete_map={"A100": COLOURS["G"], "V100": COLOURS["D"]},
        hover_data=["measured_ms", "SIMULATED_ms"],
        log_x=True,
    )
    figure.update_traces(marker=dict(size=9, line=dict(color=WALL, width=1)))
    low, high = error_range()
    figure.add_vrect(x0=low, x1=high, fillcolor=UNUSED, opacity=0.25, line_width=0, layer="below")
    figure.add_vline(x=1, line=dict(color=WALL, width=1))
    median = rows["ratio"].median()
    words = (
        f"{len(rows)} steps that others measured, and what the model says. Median of SIMULATED over measured: "
        f"{median:.2f}; {rows['ratio'].between(low, high).mean():.0%} lie between {low} and {high}, the grey band."
    )
    figure.update_xaxes(tickvals=[0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3], range=[-0.17, 0.13])
    figure.update_yaxes(categoryorder="array", categoryarray=rows["step"], title="", automargin=True, dtick=1)
    title = f"SIMULATED times beside measured ones: median {median:.2f}"
    numbers = rows[["step", "measured_ms", "SIMULATED_ms", "ratio"]].to_html(index=False, border=0)
    figure.update_layout(
        title=f"{title}<br><sub>measured by others, on V100 and A100</sub>",
        height=190 + 19 * len(rows),
        legend_title="",
        meta={"text": words, "table": numbers},
    )
    return mark_simulated(figure)
