"""SIMULATED: a step on more and more GPUs. Its efficiency, where its time goes, and the memory that it needs."""

from __future__ import annotations

import functools
import html

import ipywidgets
import pandas
import plotly.graph_objects as go

from labkit.course.figures.sweeps import LOOKS, MEMORIES
from labkit.errors import LabkitError
from labkit.show.style import BELOW, HOST, KERNEL, KINDS, LEGEND_BELOW, LINES, WALL, look, mark_simulated, panels
from labkit.show.widgets import WIDE, controlled, steps_slider

PARTS = {  # of a step: name, colour, hatching
    "compute": ("compute, with hidden communication", KERNEL, ""),
    "exposed": ("exposed communication", KINDS["communication"], ""),
}


def many_gpus_figure(table: pandas.DataFrame, gpus: int, network: str, batch: int, host_us: float) -> go.Figure:
    """The efficiency of a step over the number of GPUs, a line for each network, and one of its points in detail.

    Args:
        table: of `labkit.simulate.scaling`, or several such tables, one below the other, of different batch sizes and
            hosts.
        gpus, network, batch, host_us: of a row of the table.

    Raises:
        LabkitError: there is no such row, or several.
    """
    curves = table[(table["batch"] == batch) & (table["host_us"] == host_us)]
    chosen = curves[(curves["gpus"] == gpus) & (curves["network"] == network)]
    if len(chosen) != 1:
        raise LabkitError(
            f"gpus={gpus}, network={network!r}, batch={batch}, host_us={host_us:g}: {len(chosen)} rows of the table, "
            f"and the figure is of one. It has GPUs {sorted(set(table['gpus']))}, networks "
            f"{sorted(set(table['network']))}, batches {sorted(set(table['batch']))}, hosts "
            f"{sorted(set(table['host_us']))}."
        )
    point = chosen.iloc[0]
    heights = {
        f"images a second and GPU, divided by those of one GPU; batch {batch} on each replica": 240,
        f"the time of a step on {gpus:,} GPUs over {network}": 95,
        "memory of a GPU (counted)": 95,
    }
    figure = panels(heights, shared=False)
    _add_curves(figure, curves, point)
    _add_step(figure, point)
    _add_memory(figure, table, point)
    title = (
        f"SIMULATED {point['device']}: {gpus:,} GPUs are worth <b>{gpus * point['efficiency']:,.1f}</b>"
        f"<br><sub>{host_us:g} µs of the host a launch; {point['images_per_s']:,.0f} images a second</sub>"
    )
    layout = dict(barmode="stack", legend=LEGEND_BELOW, margin_b=BELOW)
    figure.update_layout(title=title, **layout, meta={"text": _in_words(point)})
    return mark_simulated(figure, panels=2)


def many_gpus_widget(table: pandas.DataFrame) -> ipywidgets.VBox:
    """`many_gpus_figure`, with sliders for GPUs and host, and menus of networks and batch sizes.

    Everything is in the table, so nothing is computed while the slider moves.
    """
    controls = {
        "gpus": steps_slider("GPUs", sorted(set(table["gpus"]))),
        "network": ipywidgets.Dropdown(options=list(table["network"].unique()), description="network", **WIDE),
        "batch": ipywidgets.Dropdown(options=sorted(set(table["batch"])), description="batch", **WIDE),
        "host_us": steps_slider("host, µs a launch", sorted(set(table["host_us"]))),
    }
    return controlled(functools.partial(many_gpus_figure, table), controls)


def _add_curves(figure: go.Figure, table: pandas.DataFrame, point: pandas.Series) -> None:
    for (name, rows), (dash, symbol), colour in zip(table.groupby("network", sort=False), LOOKS, LINES, strict=False):
        figure.add_scatter(
            **dict(x=rows["gpus"], y=rows["efficiency"], name=html.escape(name), mode="lines+markers", row=1, col=1),
            **dict(line=dict(color=colour, dash=dash), marker=dict(symbol=symbol, size=7)),
            hovertemplate="%{x} GPUs: %{y:.1%}<extra></extra>",
        )
    here = dict(color="white", size=12, symbol="diamond", line=dict(color=WALL, width=3))
    figure.add_scatter(
        **dict(x=[point["gpus"]], y=[point["efficiency"]], mode="markers", marker=here, row=1, col=1),
        **dict(name="you are here", hovertemplate="%{x} GPUs: %{y:.1%}<extra></extra>"),
    )
    ticks = sorted(set(table["gpus"]))
    figure.update_xaxes(type="log", tickvals=ticks, title="GPUs", row=1, col=1)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.12], row=1, col=1)


def _add_step(figure: go.Figure, point: pandas.Series) -> None:
    for part, ms in _parts_ms(point).items():
        name, colour, pattern = PARTS[part]
        figure.add_bar(
            **dict(x=[ms], y=["step"], orientation="h", name=name, marker=look(colour, pattern), row=2, col=1),
            hovertemplate=f"{name}: %{{x:,.2f}} ms<extra></extra>",
        )
    figure.update_xaxes(title="milliseconds", row=2, col=1)


def _add_memory(figure: go.Figure, table: pandas.DataFrame, point: pandas.Series) -> None:
    gigabytes = point["memory"] / 1e9
    figure.add_bar(
        **dict(x=[gigabytes], y=["memory"], orientation="h", marker=look(HOST), showlegend=False, row=3, col=1),
        hovertemplate="%{x:,.2f} GB<extra></extra>",
    )
    for number, (name, size) in enumerate(MEMORIES.items()):
        side = "top left" if number % 2 else "bottom right"  # neighbours would overlap
        line = dict(color=WALL, dash="dot", width=1)
        figure.add_vline(x=size / 1e9, line=line, annotation_text=name, annotation_position=side, row=3, col=1)
    most = max(85.0, 1.1 * table["memory"].max() / 1e9)
    figure.update_xaxes(title="gigabytes", range=[0, most], row=3, col=1)


def _parts_ms(point: pandas.Series) -> dict[str, float]:
    return {"compute": (point["step_us"] - point["exposed_us"]) / 1e3, "exposed": point["exposed_us"] / 1e3}


def _in_words(point: pandas.Series) -> str:
    parts = ", ".join(f"{PARTS[part][0]} {ms:,.2f}" for part, ms in _parts_ms(point).items())
    return (
        f"SIMULATED {point['device']}, data parallel, {point['gpus']:,} GPUs over {point['network']}, batch "
        f"{point['batch']} on each replica, {point['host_us']:g} microseconds of the host a launch: "
        f"{point['images_per_s']:,.0f} images a second, efficiency {point['efficiency']:.1%}. A step takes "
        f"{point['step_us'] / 1e3:,.2f} milliseconds: {parts}. A GPU needs {point['memory'] / 1e9:,.1f} gigabytes."
    )
