"""What a step costs against how good the pictures get."""

from __future__ import annotations

import html
from itertools import cycle
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.figures import UNUSED, WALL
from labkit.show.learning import LINES, METRICS

if TYPE_CHECKING:
    import pandas


def tradeoff_figure(costs: pandas.Series, scores: pandas.DataFrame, baseline: str, label: str) -> go.Figure:
    """fg and bg against what a step costs: a circle a seed, a bar at the median; grey, up to the baseline's worst.

    A bar in both grey bands is what `labkit.measure.within_spread` calls within.

    Args:
        costs: of a step, by name.
        scores: fg and bg in percent, a row a run, by name and seed.
        baseline: one of the names.
        label: what `costs` are, with their unit.
    """
    figure = make_subplots(cols=2, subplot_titles=list(METRICS.values()), horizontal_spacing=0.1)
    worst = scores.loc[baseline].max()
    told = []
    for (name, cost), colour in zip(costs.items(), cycle(LINES), strict=False):
        of_name, shown = scores.loc[name], html.escape(name)
        for column, metric in enumerate(METRICS, start=1):
            hover = f"{shown}, seed %{{customdata}}: {metric} %{{y:.1f}} % at %{{x:.3g}}<extra></extra>"
            dots = dict(color="rgba(0,0,0,0)", size=11, line=dict(color=colour, width=2))
            figure.add_scatter(
                **dict(
                    x=[cost] * len(of_name), y=of_name[metric], customdata=of_name.index, mode="markers", marker=dots
                ),
                **dict(name=shown, legendgroup=name, showlegend=column == 1, hovertemplate=hover, row=1, col=column),
            )
            bar = dict(symbol="line-ew", size=16, line=dict(color=WALL, width=2))
            median = dict(x=[cost], y=[of_name[metric].median()], mode="markers", marker=bar, legendgroup=name)
            figure.add_scatter(**median, showlegend=False, hoverinfo="skip", row=1, col=column)
        medians = " and ".join(f"{metric} {of_name[metric].median():.1f} %" for metric in METRICS)
        told.append(f"{name}: {cost:.3g}, median {medians}")
    for column, metric in enumerate(METRICS, start=1):
        shown = scores.loc[costs.index, metric]
        figure.update_yaxes(range=[0.8 * shown.min(), 1.1 * shown.max()], row=1, col=column)
        figure.add_hrect(y0=0, y1=worst[metric], fillcolor=UNUSED, opacity=0.25, line_width=0, row=1, col=column)
    limits = " and ".join(f"{metric} {worst[metric]:.1f} %" for metric in METRICS)
    figure.update_xaxes(title=label, rangemode="tozero")
    figure.update_layout(
        title="What a step costs, and how good the pictures get",
        height=430,
        legend=dict(orientation="h", y=-0.2),
        meta={"text": f"{label}, and scores. {'; '.join(told)}. The worst seed of {baseline}: {limits}."},
    )
    return figure
