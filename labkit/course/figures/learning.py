"""How well models have learned, and at which cost: curves, time to quality, cost against quality, and translations."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping
from itertools import cycle

import ipywidgets
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from labkit.data.batches import to_float
from labkit.errors import check_known
from labkit.measure.quality import GOAL, time_to_quality
from labkit.model import Model, run_network
from labkit.show.style import LINES, UNUSED, WALL
from labkit.show.training import picture_rows
from labkit.show.widgets import controlled
from labkit.stamp import describe

AGAINST = {"images": ("pictures seen, of each domain", 1), "seconds": ("seconds", 1), "flops": ("TFLOP", 1e12)}
METRICS = {"fg": "fg, %: fruit, compared with the truth", "bg": "bg, %: background, compared with the input"}


def learning_figure(curves: pandas.DataFrame, against: str = "images") -> go.Figure:
    """fg and bg of each run, a line for each seed; the dashed line is the goal.

    Args:
        curves: from `labkit.learning_curves`.
        against: the x axis, "images", "seconds" or "flops".
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    figure = make_subplots(cols=2, subplot_titles=list(METRICS.values()), horizontal_spacing=0.08)
    told = []
    for (name, runs), colour in zip(curves.groupby("name", sort=False), cycle(LINES), strict=False):
        for seed, looks in runs.groupby("seed"):
            for column, metric in enumerate(METRICS, start=1):
                hover = f"{html.escape(name)}, seed {seed}: {metric} %{{y:.1f}} % at %{{x:.3g}}<extra></extra>"
                line = dict(mode="lines", line=dict(color=colour, width=1.5), hovertemplate=hover)
                first = bool(seed == runs["seed"].min()) and column == 1
                named = dict(name=html.escape(name), legendgroup=name, showlegend=first)
                figure.add_scatter(x=looks[against] / unit, y=looks[metric], **line, **named, row=1, col=column)
        last = runs.groupby("seed").last()
        ends = " and ".join(f"{metric} {last[metric].min():.1f} to {last[metric].max():.1f} %" for metric in METRICS)
        told.append(f"{name} ends at {ends}")
    for column, metric in enumerate(METRICS, start=1):
        figure.add_hline(y=GOAL[metric], line=dict(color=UNUSED, dash="dash"), row=1, col=column)
    figure.update_xaxes(title=label, rangemode="tozero").update_yaxes(rangemode="tozero")
    goal = " and ".join(f"{metric} {limit:g} %" for metric, limit in GOAL.items())
    return figure.update_layout(
        title=f"Learning to make oranges, a line for each seed<br><sub>{html.escape(_stamped(curves))}</sub>",
        height=430,
        margin_t=100,
        legend=dict(orientation="h", y=-0.2),
        meta={"text": f"Against {label}, all seeds: {'; '.join(told)}. The goal is {goal}. {_stamped(curves)}."},
    )


def passes_figure(curves: pandas.DataFrame, against: str = "seconds") -> go.Figure:
    """When each run first met the goal at two evaluations in a row: a circle for each seed, a bar at the median.

    The median counts a failed run as longer than all others, and is left out where that makes it unknown.

    Args:
        curves: from `labkit.learning_curves`.
        against: "images", "seconds" or "flops".
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    taken = time_to_quality(curves)[against] / unit
    figure, told = go.Figure(), []
    names = list(dict.fromkeys(taken.index.get_level_values("name")))
    for name, colour in zip(names, cycle(LINES), strict=False):
        of_name, shown = taken[name], html.escape(name)
        median = of_name.fillna(float("inf")).median()
        passed = of_name.dropna()
        figure.add_scatter(
            **dict(x=passed, y=[shown] * len(passed), customdata=passed.index, mode="markers"),
            marker=dict(color="rgba(0,0,0,0)", size=12, line=dict(color=colour, width=2)),
            hovertemplate=f"{shown}, seed %{{customdata}}: %{{x:.3g}} {label}<extra></extra>",
        )
        if median < float("inf"):
            bar = dict(symbol="line-ns", size=22, line=dict(color=WALL, width=3))
            figure.add_scatter(x=[median], y=[shown], mode="markers", marker=bar, hoverinfo="skip")
        failed = f"{of_name.isna().sum()} of {len(of_name)} never passed"
        if len(passed) < len(of_name):
            figure.add_annotation(x=1, xref="paper", y=shown, text=failed, showarrow=False, xanchor="left", xshift=8)
        middle = f"median {median:.3g}" if median < float("inf") else "no median"
        spread = f", {passed.min():.3g} to {passed.max():.3g}" if len(passed) else ""
        told.append(f"{name}: {middle}{spread}, {failed}")
    order = [html.escape(name) for name in names]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], range=[-0.6, len(order) - 0.4])
    figure.update_xaxes(title=f"{label}, until two evaluations in a row passed", rangemode="tozero")
    return figure.update_layout(
        title=f"When the goal was reached, a circle for each seed<br><sub>{html.escape(_stamped(curves))}</sub>",
        height=190 + 44 * len(order),
        margin_r=140,  # for the notes about failed runs
        showlegend=False,
        meta={"text": f"Time to quality, in {label}. {'; '.join(told)}. {_stamped(curves)}."},
    )


def tradeoff_figure(costs: pandas.Series, scores: pandas.DataFrame, baseline: str, label: str) -> go.Figure:
    """fg and bg against the cost of a step: a circle for each seed, and a bar at the median.

    The grey bands reach up to the baseline's worst seed. A bar in both of them is within the baseline's spread, as
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
    for (name, cost), colour in zip(costs.items(), cycle(LINES), strict=False):
        of_name, shown = scores.loc[name], html.escape(name)
        for column, metric in enumerate(METRICS, start=1):
            place = dict(legendgroup=name, mode="markers", row=1, col=column)
            figure.add_scatter(
                **dict(x=[cost] * len(of_name), y=of_name[metric], customdata=of_name.index, **place),
                marker=dict(color="rgba(0,0,0,0)", size=11, line=dict(color=colour, width=2)),
                **dict(name=shown, showlegend=column == 1),
                hovertemplate=f"{shown}, seed %{{customdata}}: {metric} %{{y:.1f}} % at %{{x:.3g}}<extra></extra>",
            )
            bar = dict(symbol="line-ew", size=16, line=dict(color=WALL, width=2))
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
    weights = sorted(models)
    slider = ipywidgets.SelectionSlider(
        options=[(f"{weight:g}", weight) for weight in weights],
        value=weights[len(weights) // 2],
        description="lambda_deviation",
        style={"description_width": "130px"},
    )
    return controlled(functools.partial(deviation_figure, models, apples, oranges), {"weight": slider})


def _stamped(curves: pandas.DataFrame) -> str:
    stamp = curves.attrs["stamp"]
    return f"{describe(stamp)}, {stamp['data']} at {stamp['size']} pixels"
