"""Weights exchanged more or less often: quality after the same pictures, and the bytes that go through the network."""

from __future__ import annotations

import functools
import html

import ipywidgets
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.course.figures.learning import METRICS
from labkit.errors import check_known
from labkit.measure.quality import GOAL
from labkit.show.style import COLOURS, KINDS, UNUSED, WALL
from labkit.show.widgets import controlled
from labkit.stamp import describe


def exchange_figure(curves: pandas.DataFrame, megabytes: pandas.Series, name: str) -> go.Figure:
    """fg and bg over the pictures seen, one way of exchanging in colour, the others grey; and the traffic of each.

    Args:
        curves: `labkit.study` of "apart" or "averaged".
        megabytes: the weights or gradients exchanged, per step on average, by the curves' names.
        name: one of these names.
    """
    names = list(megabytes.index)
    check_known("name", name, names)
    others = [other for other in names if other != name]
    titles = [*METRICS.values(), "megabytes exchanged, per step"]
    figure = make_subplots(3, 1, subplot_titles=titles, row_heights=[0.36, 0.36, 0.28], vertical_spacing=0.13)
    median = curves.groupby(["name", "images"])[list(METRICS)].median()
    for row, metric in enumerate(METRICS, start=1):
        place = dict(mode="lines", showlegend=False, row=row, col=1)
        for other in others:
            line = dict(color=UNUSED, width=1)
            figure.add_scatter(
                x=median.loc[other].index, y=median.loc[other][metric], line=line, hoverinfo="skip", **place
            )
        for seed, looks in curves[curves["name"] == name].groupby("seed"):
            thin = dict(color=COLOURS["G"], width=1)
            hover = f"seed {seed}: {metric} %{{y:.1f}} % at %{{x:,}}<extra></extra>"
            figure.add_scatter(x=looks["images"], y=looks[metric], line=thin, hovertemplate=hover, **place)
        thick = dict(color=COLOURS["D"], width=3)
        hover = f"median: {metric} %{{y:.1f}} % at %{{x:,}}<extra></extra>"
        figure.add_scatter(
            x=median.loc[name].index, y=median.loc[name][metric], line=thick, hovertemplate=hover, **place
        )
        figure.add_hline(y=GOAL[metric], line=dict(color=WALL, dash="dash", width=1), row=row, col=1)
        figure.update_yaxes(range=[0, 1.05 * curves[metric].max()], row=row, col=1)
    colours = [KINDS["communication"] if other == name else UNUSED for other in names]
    bars = dict(x=megabytes, y=names, orientation="h", marker_color=colours, showlegend=False, row=3, col=1)
    figure.add_bar(**bars, hovertemplate="%{x:.3g} MB<extra></extra>")
    figure.update_xaxes(type="log", row=3, col=1)
    figure.update_yaxes(autorange="reversed", row=3, col=1)
    last = curves[curves["name"] == name].groupby("seed").last()
    ends = ", ".join(f"{metric} {last[metric].min():.1f} to {last[metric].max():.1f} %" for metric in METRICS)
    key = "thin: a seed; thick: their median; grey: the others; dashed: the goal"
    words = f"{name}: {megabytes[name]:.3g} MB per step; ends at {ends}. {describe(curves.attrs['stamp'])}."
    return figure.update_layout(
        title=f"{html.escape(name)}: {megabytes[name]:.3g} MB per step<br><sub>{key}</sub>",
        height=760,
        margin=dict(t=110),
        meta={"text": words},
    )


def exchange_widget(curves: pandas.DataFrame, megabytes: pandas.Series) -> ipywidgets.VBox:
    """`exchange_figure`, with a slider for the way of exchanging."""
    names = list(megabytes.index)
    wide = dict(style={"description_width": "130px"}, layout={"width": "480px"})  # shows "every 64 steps, outer" whole
    choose = ipywidgets.SelectionSlider(options=names, description="exchange", **wide)
    return controlled(functools.partial(exchange_figure, curves, megabytes), {"name": choose})
