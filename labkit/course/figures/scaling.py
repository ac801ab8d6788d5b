"""Loss scaling: where gradients lie in float16's range, and how a scale moves them."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from labkit.course.floats import rounding_outcomes
from labkit.show.style import PLAYERS, UNUSED
from labkit.show.widgets import WIDE, controlled

LEFT, RIGHT = -50, 30  # the powers of two that are drawn
ZERO, NORMAL, INFINITE = -25, -14, 16  # up to 2^-25 values are rounded to zero, from 2^16 on they are infinite
LINES = {
    player: (colour, "dash" if player.startswith("discriminator") else "solid") for player, colour in PLAYERS.items()
}
REGIONS = {
    "flushed to zero": (LEFT, ZERO, 0.45),
    "subnormal": (ZERO, NORMAL, 0.2),
    "overflow": (INFINITE, RIGHT, 0.45),
}


def scaling_figure(gradients: Mapping[str, Tensor], exponent: int = 0) -> go.Figure:
    """The sizes of gradients, multiplied by 2 to the power of `exponent`, in the range of float16.

    Args:
        gradients: by player, such as "generators": any shape, in float32. Zeros are left out.
        exponent: of the scale.
    """
    figure, words = go.Figure(), []
    for player, values in gradients.items():
        powers, shares = _histogram(values)
        colour, dash = LINES[player]
        figure.add_scatter(
            **dict(x=powers + exponent + 0.5, y=shares, name=player, mode="lines"),
            line=dict(shape="hvh", color=colour, dash=dash, width=2),
            customdata=powers + exponent,
            hovertemplate=f"{player}: %{{y:.1%}} of them from 2^%{{customdata}} on, up to twice that<extra></extra>",
        )
        told = ", ".join(
            f"{_percent(share)} {fate}" for fate, share in rounding_outcomes(values, 2.0**exponent).items()
        )
        words.append(f"{player}: {told}")
    for name, (low, high, opacity) in REGIONS.items():
        figure.add_vrect(x0=low, x1=high, fillcolor=UNUSED, opacity=opacity, line_width=0, layer="below")
        figure.add_annotation(x=(low + high) / 2, y=1, yref="paper", yanchor="bottom", text=name, showarrow=False)
    ticks = range(LEFT, RIGHT + 1, 10)
    figure.update_xaxes(
        title="size of a gradient after scaling, logarithmic (no unit)",
        **dict(range=[LEFT, RIGHT], tickvals=list(ticks), ticktext=[f"2<sup>{power}</sup>" for power in ticks]),
    )
    figure.update_yaxes(title="share of a player's gradients", tickformat=".0%", rangemode="tozero")
    title = f"Gradients in float16, losses scaled by 2<sup>{exponent}</sup>" + "".join(
        f"<br><sub>{line}</sub>" for line in words
    )
    return figure.update_layout(
        title=title,
        height=490,
        margin_t=155,
        legend=dict(orientation="h", y=-0.22),
        meta={"text": f"Gradients in float16, losses scaled by 2 to the power of {exponent}. {'; '.join(words)}."},
    )


def scaling_widget(gradients: Mapping[str, Tensor]) -> ipywidgets.VBox:
    """`scaling_figure`, with a slider for the exponent."""
    slider = ipywidgets.IntSlider(0, min=-10, max=32, description="scale: 2 to the", **WIDE)
    return controlled(functools.partial(scaling_figure, gradients), {"exponent": slider})


def _histogram(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two, and the share of the non-zero `values` whose size is from each one to the next."""
    exponents = torch.frexp(values[values != 0].flatten()).exponent - 1
    least = exponents.min()
    counts = torch.bincount(exponents - least)
    return np.arange(len(counts)) + least.item(), (counts / counts.sum()).numpy()


def _percent(share: float) -> str:
    """A share in percent. One overflow costs a whole step, so a small share must not look like zero."""
    return "under 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
