"""How well models have learned, after how much: curves, and when they reached the goal."""

from __future__ import annotations

import html
from itertools import cycle
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.errors import check_known
from labkit.measure.quality import GOAL, time_to_quality
from labkit.show.figures import COLOURS, HOST, UNUSED, WALL

if TYPE_CHECKING:
    import pandas

AGAINST = {"images": ("pictures seen, of each domain", 1), "seconds": ("seconds", 1), "flops": ("TFLOP", 1e12)}
LINES = [*COLOURS.values(), HOST, WALL]
METRICS = {"fg": "fg, %: fruit, from the truth", "bg": "bg, %: background, from what it was"}


def learning_figure(curves: pandas.DataFrame, against: str = "images") -> go.Figure:
    """fg and bg of each run, a line a seed, against "images", "seconds" or "flops"; dashed, the goal.

    Args:
        curves: from `labkit.learning_curves`.
        against: what a look's place on the axis is.
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    figure = make_subplots(cols=2, subplot_titles=list(METRICS.values()), horizontal_spacing=0.08)
    told = []
    for (name, runs), colour in zip(curves.groupby("name", sort=False), cycle(LINES), strict=False):
        for seed, looks in runs.groupby("seed"):
            for column, metric in enumerate(METRICS, start=1):
                hover = f"{html.escape(name)}, seed {seed}: {metric} %{{y:.1f}} % at %{{x:.3g}}<extra></extra>"
                look = dict(mode="lines", line=dict(color=colour, width=1.5), hovertemplate=hover)
                first = bool(seed == runs["seed"].min()) and column == 1
                named = dict(name=html.escape(name), legendgroup=name, showlegend=first)
                figure.add_scatter(x=looks[against] / unit, y=looks[metric], **look, **named, row=1, col=column)
        last = runs.groupby("seed").last()
        ends = " and ".join(f"{metric} {last[metric].min():.1f} to {last[metric].max():.1f} %" for metric in METRICS)
        told.append(f"{name} ends at {ends}")
    for column, metric in enumerate(METRICS, start=1):
        figure.add_hline(y=GOAL[metric], line=dict(color=UNUSED, dash="dash"), row=1, col=column)
    figure.update_xaxes(title=label, rangemode="tozero").update_yaxes(rangemode="tozero")
    goal = " and ".join(f"{metric} {limit:g} %" for metric, limit in GOAL.items())
    figure.update_layout(
        title=f"Learning to make oranges, a line a seed<br><sub>{html.escape(_stamped(curves))}</sub>",
        height=430,
        margin_t=100,
        legend=dict(orientation="h", y=-0.2),
        meta={"text": f"Against {label}, all seeds: {'; '.join(told)}. The goal is {goal}. {_stamped(curves)}."},
    )
    return figure


def passes_figure(curves: pandas.DataFrame, against: str = "seconds") -> go.Figure:
    """When each run reached the goal at two looks running: a circle a seed, a bar at the median, and how many failed.

    The median counts a run that failed as longer than all others, and is left out where that makes it unknown.

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
        of_name = taken[name]
        median = of_name.fillna(float("inf")).median()
        shown = html.escape(name)
        hover = f"{shown}, seed %{{customdata}}: %{{x:.3g}} {label}<extra></extra>"
        dots = dict(color="rgba(0,0,0,0)", size=12, line=dict(color=colour, width=2))
        passed = of_name.dropna()
        figure.add_scatter(
            x=passed, y=[shown] * len(passed), customdata=passed.index, mode="markers", marker=dots, hovertemplate=hover
        )
        if median < float("inf"):
            bar = dict(symbol="line-ns", size=22, line=dict(color=WALL, width=3))
            figure.add_scatter(x=[median], y=[shown], mode="markers", marker=bar, hoverinfo="skip")
        failed = int(of_name.isna().sum())
        if failed:
            note = f"{failed} of {len(of_name)} never passed"
            figure.add_annotation(x=1, xref="paper", y=shown, text=note, showarrow=False, xanchor="left", xshift=8)
        middle = f"median {median:.3g}" if median < float("inf") else "no median"
        spread = f", {passed.min():.3g} to {passed.max():.3g}" if len(passed) else ""
        told.append(f"{name}: {middle}{spread}, {failed} of {len(of_name)} never passed")
    order = [html.escape(name) for name in names]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], range=[-0.6, len(order) - 0.4])
    figure.update_xaxes(title=f"{label}, until two looks running passed", rangemode="tozero")
    figure.update_layout(
        title=f"When the goal was reached, a circle a seed<br><sub>{html.escape(_stamped(curves))}</sub>",
        height=190 + 44 * len(order),
        margin_r=140,  # what never passed is noted there
        showlegend=False,
        meta={"text": f"Time to quality, in {label}. {'; '.join(told)}. {_stamped(curves)}."},
    )
    return figure


def _stamped(curves: pandas.DataFrame) -> str:
    stamp = curves.attrs["stamp"]
    threads = f"{stamp['threads']} thread{'s' * (stamp['threads'] != 1)}"
    return f"{stamp['device']}, torch {stamp['torch']}, {threads}, {stamp['data']} at {stamp['size']} pixels"
