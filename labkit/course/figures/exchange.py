"""Weights exchanged more or less often: quality after the same pictures, and the bytes that go through the network."""

from __future__ import annotations

import functools
import html

import ipywidgets
import pandas
import plotly.graph_objects as go

from labkit.course.figures.learning import KEY, METRICS, add_curves, ends
from labkit.errors import check_known
from labkit.show.style import KINDS, UNUSED, panels
from labkit.show.widgets import controlled, steps_slider
from labkit.stamp import describe


def exchange_figure(curves: pandas.DataFrame, megabytes: pandas.Series, name: str) -> go.Figure:
    """fg and bg over the pictures seen and the traffic of each way of exchanging, one in colour, the others grey.

    Args:
        curves: `labkit.study` of "apart" or "averaged".
        megabytes: the weights or gradients exchanged, per step on average, by the curves' names.
        name: one of these names.
    """
    check_known("name", name, list(megabytes.index))
    traffic = "megabytes exchanged, per step"
    figure = panels(dict.fromkeys(METRICS.values(), 175) | {traffic: 135}, shared=False)
    for row, metric in enumerate(METRICS, start=1):
        add_curves(figure, curves, name, "images", metric, row, 1)
    colours = [KINDS["communication"] if other == name else UNUSED for other in megabytes.index]
    bars = dict(x=megabytes, y=megabytes.index, orientation="h", marker_color=colours, showlegend=False, row=3, col=1)
    figure.add_bar(**bars, hovertemplate="%{x:.3g} MB<extra></extra>")
    figure.update_xaxes(type="log", row=3, col=1)
    figure.update_yaxes(autorange="reversed", row=3, col=1)
    words = (
        f"{name}: {megabytes[name]:.3g} MB per step; ends at {ends(curves, name)}. {describe(curves.attrs['stamp'])}."
    )
    title = f"{html.escape(name)}: {megabytes[name]:.3g} MB per step<br><sub>{KEY}</sub>"
    return figure.update_layout(title=title, meta={"text": words})


def exchange_widget(curves: pandas.DataFrame, megabytes: pandas.Series) -> ipywidgets.VBox:
    """`exchange_figure`, with a slider for the way of exchanging."""
    slider = steps_slider("exchange", list(megabytes.index))
    slider.value = megabytes.index[0]
    return controlled(functools.partial(exchange_figure, curves, megabytes), {"name": slider})
