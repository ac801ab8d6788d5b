"""The roofline: what networks or layers reach, under what this device could reach at most."""

from __future__ import annotations

import html
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from labkit.measure.roofline import roofline_seconds
from labkit.show.figures import UNUSED
from labkit.show.learning import LINES

if TYPE_CHECKING:
    import pandas

TICKS = [digit * 10**power for power in range(-2, 7) for digit in (1, 2, 5)]
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")


def roofline_figure(costs: pandas.DataFrame, flops_per_s: float, bytes_per_s: float, title: str) -> go.Figure:
    """FLOP/s against FLOP per byte, a point a network, under the roof of the two rates; both axes logarithmic.

    Left of the bend memory is the limit, right of it arithmetic.

    Args:
        costs: from `labkit.simulate.network_costs`.
        flops_per_s, bytes_per_s: what this device can do: see `labkit.measure.roofline`.
        title: what is shown.
    """
    bend = flops_per_s / bytes_per_s
    ends = min(costs["flop_per_byte"].min(), bend) / 2, max(costs["flop_per_byte"].max(), bend) * 2
    roof = [flop / roofline_seconds(flop, 1, flops_per_s, bytes_per_s) / 1e9 for flop in (ends[0], bend, ends[1])]
    figure = go.Figure()
    figure.add_scatter(
        **dict(x=[ends[0], bend, ends[1]], y=roof, mode="lines", name="the roof", line=dict(color=UNUSED, width=3)),
        hovertemplate="at most %{y:.3g} GFLOP/s at %{x:.3g} FLOP a byte<extra></extra>",
    )
    told = []
    for (name, row), colour, symbol in zip(costs.iterrows(), cycle(LINES), cycle(SYMBOLS), strict=False):
        reached = row["flops"] / row["median_s"] / 1e9
        least = roofline_seconds(row["flops"], row["bytes_moved"], flops_per_s, bytes_per_s)
        told.append(
            f"{name}: {reached:.3g} GFLOP/s at {row['flop_per_byte']:.3g} FLOP a byte, "
            f"{least / row['median_s']:.0%} of the roof"
        )
        figure.add_scatter(
            **dict(x=[row["flop_per_byte"]], y=[reached], mode="markers", name=html.escape(name)),
            marker=dict(color=colour, symbol=symbol, size=13),
            hovertemplate=f"{html.escape(told[-1])}<extra></extra>",
        )
    figure.add_annotation(
        x=np.log10(bend), y=np.log10(roof[1]), text=f"{bend:.1f} FLOP a byte", yshift=14, showarrow=False
    )
    figure.update_xaxes(title="FLOP per byte moved at least (logarithmic)", type="log", tickvals=TICKS)
    figure.update_yaxes(title="GFLOP/s (logarithmic)", type="log", tickvals=TICKS)
    stamp = costs.attrs["stamp"]
    threads = f"{stamp['threads']} thread{'s' * (stamp['threads'] != 1)}"
    on = f"{stamp['device']}, {threads}, batch of shape {tuple(stamp['batch_shape'])}"
    figure.update_layout(
        title=f"{html.escape(title)}<br><sub>{html.escape(on)}</sub>",
        height=440,
        meta={
            "text": f"{title}. The roof rises with {bytes_per_s / 1e9:.3g} GB/s up to {bend:.1f} FLOP a byte; from "
            f"there on it is flat at {flops_per_s / 1e9:.3g} GFLOP/s. {'; '.join(told)}. {on}."
        },
    )
    return figure
