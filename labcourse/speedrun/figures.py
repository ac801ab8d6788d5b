"""The speedrun: the ladder of records, and how an entry came nearer to the goal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch
from PIL import Image

from labcourse.speedrun.ladder import FOLDER, pictures
from labcourse.speedrun.race_judge import Heat
from labkit.measure.quality import GOAL
from labkit.stamp import describe
from labtrace.show.style import COLOURS, LINES, WALL, panels

TICK_SECONDS = [1, 2, 5, 10, 20, 50, 100, 200, 500]
PICTURES_HEIGHT, PICTURES_TOP = 0.6, -0.25  # in heights of the plot, counted from its lower edge


def ladder_figure(records: Sequence[Mapping[str, Any]], folder: Path = FOLDER) -> go.Figure:
    """The seconds of records over their rungs, and below each rung a test picture with its translation.

    A point is the median over the seeds, its bar reaches from the shortest to the longest time. The grey line is the
    part before the first update: loading PyTorch and labkit, and making the model.

    Args:
        records: from `labcourse.speedrun.records`.
        folder: where their pictures are.
    """
    heats_of = {record["name"]: [Heat(**heat) for heat in record["heats"]] for record in records}
    names, medians = list(heats_of), [record["seconds"] for record in records]
    longest, shortest = ([end(heat.seconds for heat in each) for each in heats_of.values()] for end in (max, min))
    bars = {
        "array": [long - median for long, median in zip(longest, medians, strict=True)],
        "arrayminus": [median - short for short, median in zip(shortest, medians, strict=True)],
    }
    figure = go.Figure()
    figure.add_scatter(
        **dict(x=names, y=medians, error_y=bars, line=dict(color=COLOURS["G"], shape="hv")),
        **dict(mode="lines+markers+text", text=[f"{median:.3g} s" for median in medians], textposition="top right"),
        customdata=[record["difference"] for record in records],
        hovertemplate="%{x}: %{y:.3g} s<br>%{customdata}<extra></extra>",
        name="until the last update",
        cliponaxis=False,
    )
    figure.add_scatter(
        x=names,
        y=[statistics.median(heat.times[0] for heat in each) for each in heats_of.values()],
        mode="lines",
        line=dict(color=WALL, dash="dot"),
        name="until the first update",
    )
    for name in names:
        both = torch.cat([rows[0] for rows in pictures(name, folder)], dim=1)  # an apple, above what it became
        figure.add_layout_image(
            source=Image.fromarray(both.permute(1, 2, 0).numpy()),
            **dict(xref="x", x=name, sizex=0.9, xanchor="center"),
            **dict(yref="paper", y=PICTURES_TOP, sizey=PICTURES_HEIGHT, yanchor="top"),
        )
    where = "; ".join(dict.fromkeys(describe(record["stamp"]) for record in records))
    told = ", ".join(f"{name} {median:.3g}" for name, median in zip(names, medians, strict=True))
    return figure.update_layout(
        title=f"{len(records)} records, the slowest first<br><sub>{where}</sub>",
        xaxis=dict(tickangle=-25),
        yaxis=dict(title="seconds (log scale)", type="log", tickvals=TICK_SECONDS),
        legend=dict(x=1, xanchor="right", y=1),
        height=620,
        margin=dict(b=250),
        meta={"text": f"Calibrated seconds of the records: {told}. Below each an apple with the orange it became."},
    )


def heats_figure(entries: Mapping[str, Sequence[Heat]]) -> go.Figure:
    """fg and bg over the calibrated seconds of trainings, a line for each heat. The goal is dotted.

    Args:
        entries: heats by the entry's name, from `labcourse.speedrun.race`.
    """
    goals = {name: f"goal: {goal:g} %" for name, goal in GOAL.items()}
    figure = panels(dict.fromkeys(goals, 220), notes=goals)
    for row, (of, goal) in enumerate(GOAL.items(), start=1):
        for (name, runs), colour in zip(entries.items(), cycle(LINES), strict=False):
            for number, heat in enumerate(runs):
                figure.add_scatter(
                    **dict(x=heat.times, y=[look[of] for look in heat.curve], row=row, col=1, line_color=colour),
                    **dict(name=name, legendgroup=name, showlegend=number == 0 and row == 1),
                    hovertemplate=f"seed {heat.seed}: {of} %{{y:.1f}} % after %{{x:.1f}} s",
                )
        figure.add_hline(goal, row=row, col=1, line=dict(color=WALL, dash="dot"))
    ends = "; ".join(
        f"{name}: " + ", ".join(f"fg {heat.curve[-1]['fg']:.1f}, bg {heat.curve[-1]['bg']:.1f}" for heat in runs)
        for name, runs in entries.items()
    )
    return figure.update_layout(
        title="The way to the goal",
        xaxis2_title="calibrated seconds since the start of the process",
        yaxis_title="fg, %",
        yaxis2_title="bg, %",
        meta={"text": f"fg and bg in percent over the seconds, lower is better. At the end, {ends}."},
    )
