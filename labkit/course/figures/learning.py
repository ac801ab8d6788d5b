"""How well models have learned, and at which cost: curves, time to quality, cost against quality, and translations."""

from __future__ import annotations

import functools
import html
import itertools
import textwrap
from collections.abc import Mapping

import ipywidgets
import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from labkit.data.batches import to_float
from labkit.errors import check_known
from labkit.measure.quality import GOAL, time_to_quality
from labkit.models.model import Model, run_network
from labkit.show.style import COLOURS, LINES, UNUSED, WALL
from labkit.show.training import picture_rows
from labkit.show.widgets import controlled, steps_slider
from labkit.stamp import describe

AGAINST = {"images": ("pictures seen, of each domain", 1), "seconds": ("seconds", 1), "flops": ("TFLOP", 1e12)}
KEY = "thin: a seed; thick: their median; grey: the other medians; dashed: the goal"
METRICS = {"fg": "fg, %: fruit, compared with the truth", "bg": "bg, %: background, compared with the input"}


def learning_figure(curves: pandas.DataFrame, against: str = "images") -> go.Figure:
    """fg and bg of each run: a column of panels for each name, with its seeds as thin lines and their median thick.

    The medians of the other names are grey, for comparison. The dashed line is the goal.

    Args:
        curves: from `labkit.study`.
        against: the x axis, "images", "seconds" or "flops".
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    names = list(curves["name"].unique())
    titles = ["<br>".join(map(html.escape, textwrap.wrap(name, 150 // len(names)))) for name in names]
    figure = make_subplots(
        2, len(names), column_titles=titles, shared_yaxes=True, shared_xaxes=True, x_title=label,
        horizontal_spacing=0.02, vertical_spacing=0.08,
    )  # fmt: skip
    for (column, name), (row, metric) in itertools.product(enumerate(names, 1), enumerate(METRICS, 1)):
        add_curves(figure, curves, name, against, metric, row, column)
    figure.update_xaxes(range=[0, 1.08 * curves[against].max() / unit], nticks=4, tickangle=0)
    for row, title in enumerate(METRICS.values(), start=1):
        figure.update_yaxes(title=title.partition(", compared")[0], row=row, col=1)
    figure.update_annotations(font_size=13)
    goal = " and ".join(f"{metric} {limit:g} %" for metric, limit in GOAL.items())
    told = "; ".join(f"{name} ends at {ends(curves, name)}" for name in names)
    return figure.update_layout(
        title=f"Learning to make oranges<br><sub>{KEY}<br>{html.escape(_stamped(curves))}</sub>",
        height=560,
        margin=dict(t=150, b=70),
        meta={"text": f"Against {label}, all seeds: {told}. The goal is {goal}. {_stamped(curves)}."},
    )


def add_curves(
    figure: go.Figure, curves: pandas.DataFrame, name: str, against: str, metric: str, row: int, column: int
) -> None:
    """A panel: the seeds of `name` as thin lines, their median thick, the others' medians grey, the goal dashed."""
    unit = AGAINST[against][1]
    medians = curves.groupby(["name", "images"], sort=False)[list({against: 0, metric: 0})].median()
    place = dict(mode="lines", showlegend=False, row=row, col=column)
    grey, thin, thick = (
        dict(color=colour, width=n) for colour, n in ((UNUSED, 1), (COLOURS["G"], 1), (COLOURS["D"], 3))
    )
    lines = [("", medians.loc[other], grey) for other in curves["name"].unique() if other != name]
    lines += [(f"seed {seed}", looks, thin) for seed, looks in curves[curves["name"] == name].groupby("seed")]
    for label, looks, line in [*lines, ("median", medians.loc[name], thick)]:
        hover = dict(
            hovertemplate=f"{html.escape(name)}, {label}: {metric} %{{y:.1f}} % at %{{x:,.4~r}}<extra></extra>"
        )
        told = dict(name=label, **hover) if label else dict(hoverinfo="skip")
        figure.add_scatter(x=looks[against] / unit, y=looks[metric], line=line, **told, **place)
    figure.add_hline(y=GOAL[metric], line=dict(color=WALL, dash="dash", width=1), row=row, col=column)
    figure.update_yaxes(range=[0, 1.05 * curves[metric].max()], row=row, col=column)


def ends(curves: pandas.DataFrame, name: str) -> str:
    """The range in which the seeds of `name` end, in words."""
    last = curves[curves["name"] == name].groupby("seed").last()
    return " and ".join(f"{metric} {last[metric].min():.1f} to {last[metric].max():.1f} %" for metric in METRICS)


def passes_figure(curves: pandas.DataFrame, against: str = "seconds") -> go.Figure:
    """When each run first met the goal at two evaluations in a row: a circle for each seed, a bar at the median.

    Seeds lie one below the other, or equal times would hide one another. The median counts a failed run as longer than
    all others, and is left out where that makes it unknown.

    Args:
        curves: from `labkit.study`.
        against: "images", "seconds" or "flops".
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    taken = time_to_quality(curves)[against] / unit
    figure, told = go.Figure(), []
    names = list(dict.fromkeys(taken.index.get_level_values("name")))
    for row, name in enumerate(names):
        of_name, shown = taken[name], html.escape(name)
        median = of_name.fillna(float("inf")).median()
        heights = pandas.Series(np.linspace(row - 0.45, row + 0.45, len(of_name) + 2)[1:-1], index=of_name.index)
        passed = of_name.dropna()
        figure.add_scatter(
            **dict(x=passed, y=heights[passed.index], customdata=passed.index, mode="markers"),
            marker=dict(color=COLOURS["G"], size=9, line=dict(color=WALL, width=1)),
            hovertemplate=f"{shown}, seed %{{customdata}}: %{{x:.3g}} {label}<extra></extra>",
        )
        if median < float("inf"):
            bar = dict(symbol="line-ns", size=44, line=dict(color=COLOURS["D"], width=3))
            figure.add_scatter(x=[median], y=[row], mode="markers", marker=bar, hoverinfo="skip")
        failed = f"{of_name.isna().sum()} of {len(of_name)} never passed"
        if len(passed) < len(of_name):
            figure.add_annotation(x=1, xref="paper", y=row, text=failed, showarrow=False, xanchor="left", xshift=8)
        middle = f"median {median:.3g}" if median < float("inf") else "no median"
        spread = f", {passed.min():.3g} to {passed.max():.3g}" if len(passed) else ""
        told.append(f"{name}: {middle}{spread}, {failed}")
    order = [html.escape(name) for name in names]
    ticks = dict(tickvals=list(range(len(order))), ticktext=order, showgrid=False, zeroline=False)
    figure.update_yaxes(range=[len(order) - 0.4, -0.6], **ticks)
    figure.update_xaxes(title=f"{label}, until two evaluations in a row passed", rangemode="tozero")
    return figure.update_layout(
        title=f"When the goal was reached, a circle for each seed<br><sub>{html.escape(_stamped(curves))}</sub>",
        height=190 + 56 * len(order),
        margin_r=140,  # for the notes about failed runs
        showlegend=False,
        meta={"text": f"Time to quality, in {label}. {'; '.join(told)}. {_stamped(curves)}."},
    )


def tradeoff_figure(costs: pandas.Series, scores: pandas.DataFrame, baseline: str, label: str) -> go.Figure:
    """fg and bg against the cost of a step: a circle for each seed, and a bar at the median.

    Circles stand slightly left and right of their cost, or equal scores would hide one another. The grey bands reach up
    to the baseline's worst seed. A bar in both of them is within the baseline's spread, as
    `labkit.measure.within_spread` says.

    Args:
        costs: of a step, by name.
        scores: fg and bg in percent, a row for each run, by name and seed.
        baseline: one of the names.
        label: of the x axis, with the unit of `costs`.
    """
    figure = make_subplots(cols=2, subplot_titles=list(METRICS.values()), horizontal_spacing=0.1)
    worst = scores.loc[baseline].max()
    told = []
    for (name, cost), colour in zip(costs.items(), itertools.cycle(LINES), strict=False):
        of_name, shown = scores.loc[name], html.escape(name)
        beside = cost + costs.max() * np.linspace(-0.012, 0.012, len(of_name))
        for column, metric in enumerate(METRICS, start=1):
            place = dict(legendgroup=name, mode="markers", row=1, col=column)
            figure.add_scatter(
                **dict(x=beside, y=of_name[metric], customdata=of_name.index, **place),
                marker=dict(color=colour, size=8, line=dict(color=WALL, width=1)),
                **dict(name=shown, showlegend=column == 1),
                hovertemplate=f"{shown}, seed %{{customdata}}: {metric} %{{y:.1f}} % at {cost:.3g}<extra></extra>",
            )
            bar = dict(symbol="line-ew", size=18, line=dict(color=colour, width=3))
            median = dict(x=[cost], y=[of_name[metric].median()], marker=bar, showlegend=False, hoverinfo="skip")
            figure.add_scatter(**median, **place)
        medians = " and ".join(f"{metric} {of_name[metric].median():.1f} %" for metric in METRICS)
        told.append(f"{name}: {cost:.3g}, median {medians}")
    for column, metric in enumerate(METRICS, start=1):
        drawn = scores.loc[costs.index, metric]
        figure.update_yaxes(range=[0.8 * drawn.min(), 1.1 * drawn.max()], row=1, col=column)
        figure.add_hrect(y0=0, y1=worst[metric], fillcolor=UNUSED, opacity=0.25, line_width=0, row=1, col=column)
    limits = " and ".join(f"{metric} {worst[metric]:.1f} %" for metric in METRICS)
    figure.update_xaxes(title=label, rangemode="tozero")
    return figure.update_layout(
        title="The cost of a step, and the quality of the pictures",
        height=430,
        legend=dict(orientation="h", y=-0.2),
        meta={"text": f"{label}, and scores. {'; '.join(told)}. The worst seed of {baseline}: {limits}."},
    )


def deviation_figure(models: Mapping[float, Model], apples: Tensor, oranges: Tensor, weight: float) -> go.Figure:
    """Translations of apples, and of oranges, by the translator that was trained with this weight of the deviation.

    Args:
        models: from `labkit.deviation_models`.
        apples, oranges: test pictures, ``uint8`` (N, 3, H, W), the same scenes with either fruit.
        weight: of the deviation, one of the keys of `models`.
    """
    translator = models[weight].translator("AtoB")
    from_apples, from_oranges = (run_network(translator, to_float(pictures)) for pictures in (apples, oranges))
    rows = {"apples": apples, "translated": from_apples, "oranges": oranges, "oranges translated": from_oranges}
    moved = float((from_apples - to_float(apples)).abs().mean() / 2)
    text = (
        f"Apples, and their translations by the translator trained with lambda_deviation {weight:g}; oranges, and "
        f"their translations. On average it changes apples by {moved:.1%} of the range from black to white."
    )
    return picture_rows(rows, f"lambda_deviation = {weight:g}: apples change by {moved:.1%} of the range", text)


def deviation_widget(models: Mapping[float, Model], apples: Tensor, oranges: Tensor) -> ipywidgets.VBox:
    """`deviation_figure`, with a choice of the weight."""
    slider = steps_slider("lambda_deviation", sorted(models))
    return controlled(functools.partial(deviation_figure, models, apples, oranges), {"weight": slider})


def _stamped(curves: pandas.DataFrame) -> str:
    stamp = curves.attrs["stamp"]
    return f"{describe(stamp)}, {stamp['data']} at {stamp['size']} pixels"
