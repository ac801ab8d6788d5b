"""Plotly figures. Each has a title that says its subject, and a text alternative in ``figure.layout.meta["text"]``."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import HTML, display
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots
from torch import Tensor
from torchvision.utils import make_grid

from labkit.data.batches import to_uint8

if TYPE_CHECKING:
    import pandas

# Okabe and Ito's colours, told apart by colour-blind eyes as well; one meaning each, everywhere.
COLOURS = {"G": "#0072B2", "D": "#D55E00", "cycle": "#009E73", "idt": "#CC79A7", "dev": "#F0E442", "rec": "#56B4E9"}
HOST, KERNEL, WALL, UNUSED = "#E69F00", "#56B4E9", "#000000", "#999999"
PLAYERS = {
    "generators": COLOURS["G"],
    "discriminators": COLOURS["D"],
    "autoencoder": COLOURS["rec"],
    "translator": COLOURS["G"],
    "discriminator": COLOURS["D"],
}
TERMS = {
    "G": "deceive D",
    "D": "discriminator",
    "cycle": "cycle",
    "idt": "identity",
    "dev": "deviation",
    "rec": "reconstruction",
}


def view(figure: go.Figure) -> None:
    """Shows a figure, and under it, folded away, what it shows in words."""
    display(figure)
    display(HTML(in_words(figure)))


def in_words(figure: go.Figure) -> str:
    """A figure's text alternative, folded away, as HTML."""
    return f"<details><summary>This figure in words</summary>{html.escape(figure.layout.meta['text'])}</details>"


def picture_rows(rows: Mapping[str, Tensor], title: str, text: str, scale: int = 2) -> go.Figure:
    """Rows of pictures, each (N, 3, H, W), ``uint8`` or floats in [-1, 1], all of one size, under their names.

    `text` is the text alternative: what a reader should see in the pictures.
    """
    pictures = [row if not row.is_floating_point() else to_uint8(row) for row in rows.values()]
    height = pictures[0].shape[-2] + 2  # make_grid puts two pixels round each picture
    lines = [make_grid(row, nrow=len(row), pad_value=255)[:, : height + (row is pictures[-1]) * 2] for row in pictures]
    grid = np.concatenate([line.permute(1, 2, 0).numpy() for line in lines]).repeat(scale, 0).repeat(scale, 1)
    figure = px.imshow(grid, binary_string=True, title=title)
    ticks = [(i + 0.5) * height * scale for i in range(len(rows))]
    figure.update_yaxes(tickvals=ticks, ticktext=list(rows), showgrid=False).update_xaxes(visible=False)
    figure.update_traces(hoverinfo="skip", hovertemplate=None)
    figure.update_layout(
        width=grid.shape[1] + 180, height=grid.shape[0] + 70, margin=dict(l=140, r=10, t=50, b=10), meta={"text": text}
    )
    return figure


def loss_curves(losses: Mapping[str, Sequence[float]], steps: int) -> go.Figure:
    """Every loss of a run over its steps, a moving mean over 25 of them; solid for A, dashed for B.

    Cycle, identity and reconstruction losses fall as translations get faithful. The two of the game, G and D, do not
    have to fall: each is as good as the other side allows.
    """
    figure = go.Figure()
    for name, values in losses.items():
        term, domain = name.split("_")
        figure.add_scatter(
            x=list(range(1, len(values) + 1)),
            y=moving_mean(values),
            name=name,
            line=dict(color=COLOURS[term], dash="solid" if domain == "A" else "dash"),
            hovertemplate=f"{TERMS[term]} ({name}): %{{y:.3f}} at step %{{x}}<extra></extra>",
        )
    last = ", ".join(f"{name} {moving_mean(values)[-1]:.2f}" for name, values in losses.items())
    figure.update_layout(
        title="Losses while training, weighted, mean of 25 steps",
        xaxis=dict(title="step", range=[0, steps]),
        yaxis=dict(title="loss (no unit, log scale)", type="log"),
        height=420,
        meta={"text": f"{len(losses)} losses over the steps. At the end of what is drawn: {last or 'nothing yet'}."},
    )
    return figure


def timing_strips(seconds: Mapping[str, Sequence[float]], title: str) -> go.Figure:
    """Every measurement of several things that were timed in turn, one line each, round by round."""
    figure = go.Figure()
    for (name, times), colour in zip(seconds.items(), COLOURS.values(), strict=False):
        milliseconds = [1e3 * time for time in times]
        figure.add_scatter(y=milliseconds, name=name, mode="lines+markers", line_color=colour)
    medians = ", ".join(f"{name} {1e3 * statistics.median(times):.1f} ms" for name, times in seconds.items())
    figure.update_layout(
        title=title,
        xaxis_title="round",
        yaxis=dict(title="milliseconds", rangemode="tozero"),
        height=340,
        meta={"text": f"Times by round, close to one another. Medians: {medians}."},
    )
    return figure


def time_bars(steps: Mapping[str, Mapping[str, float]], title: str) -> go.Figure:
    """Where the time of steps goes: for each a bar made of its parts, in milliseconds; colours as in `range_look`."""
    figure = go.Figure()
    for part in dict.fromkeys(part for parts in steps.values() for part in parts):
        colour, pattern = range_look(part)
        figure.add_bar(
            y=list(steps),
            x=[parts.get(part, 0.0) for parts in steps.values()],
            name=part,
            orientation="h",
            marker=dict(color=colour, pattern_shape=pattern),
            hovertemplate=f"{part}: %{{x:.2f}} ms<extra>%{{y}}</extra>",
        )
    words = "; ".join(
        f"{name}: " + ", ".join(f"{part} {time:.1f} ms" for part, time in parts.items())
        for name, parts in steps.items()
    )
    figure.update_layout(
        title=title,
        barmode="stack",
        xaxis_title="milliseconds",
        legend_traceorder="normal",
        height=300 + 40 * len(steps),
        meta={"text": words},
    )
    return figure


def range_look(name: str) -> tuple[str, str]:
    """Colour and hatching of a bar for one of labkit's ranges, such as "generators backward".

    Generators are blue, discriminators orange, an autoencoder light blue;
    the forward pass is the palest of each, the optimiser hatched.
    """
    player, _, phase = name.partition(" ")
    colour = PLAYERS.get(player, UNUSED)
    if phase == "forward":
        colour = f"rgba{(*hex_to_rgb(colour), 0.55)}"  # opacity the legend would not show
    return colour, "/" if phase == "optimizer" else ""


def operator_bars(table: pandas.DataFrame, steps: int, top: int = 12) -> go.Figure:
    """The operators that took most time of their own, in milliseconds a step; `table` from `operators`."""
    column = "self_gpu_us" if table["self_gpu_us"].any() else "self_cpu_us"
    shown = table.sort_values(column, ascending=False).head(top)
    milliseconds = shown[column] / 1e3 / steps
    figure = go.Figure(
        go.Bar(
            y=shown.index,
            x=milliseconds,
            orientation="h",
            marker_color=COLOURS["G"],
            customdata=shown["calls"] / steps,
            hovertemplate="%{y}: %{x:.2f} ms in %{customdata:.0f} calls a step<extra></extra>",
        )
    )
    share = shown[column].sum() / table[column].sum()
    first = ", ".join(f"{name} {time:.1f} ms" for name, time in milliseconds.head(3).items())
    figure.update_yaxes(autorange="reversed").update_layout(
        title=f"Operators by their own time on the {'GPU' if column == 'self_gpu_us' else 'CPU'}",
        xaxis_title=f"milliseconds a step; these {len(shown)} are {share:.0%} of all",
        height=90 + 26 * len(shown),
        margin_l=230,
        meta={"text": f"Bars, longest first: {first}. The {len(shown)} shown take {share:.0%} of all operators' time."},
    )
    return figure


def moving_mean(values: Sequence[float], window: int = 25) -> list[float]:
    """The mean of each value and up to `window` - 1 before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.maximum(np.arange(len(values)) - window + 1, 0)
    return ((sums[1:] - sums[first]) / (np.arange(len(values)) - first + 1)).tolist()


def size_bars(sizes: Mapping[str, tuple[int, int]]) -> go.Figure:
    """Parameters beside work: for each network its `labkit.measure.roofline.Size`."""
    figure = make_subplots(cols=2, subplot_titles=("parameters, millions", "one forward pass, GFLOP"))
    for column, (unit, colour) in enumerate(((1e6, COLOURS["G"]), (1e9, COLOURS["D"])), start=1):
        values = [size[column - 1] / unit for size in sizes.values()]
        figure.add_bar(
            y=list(sizes), x=values, orientation="h", marker_color=colour, texttemplate="%{x:.1f}", row=1, col=column
        )
    described = (f"{name}: {p / 1e6:.1f} million parameters, {f / 1e9:.1f} GFLOP" for name, (p, f) in sizes.items())
    figure.update_yaxes(autorange="reversed").update_yaxes(showticklabels=False, col=2)
    figure.update_layout(
        title="Parameters are not work", showlegend=False, height=320, meta={"text": "; ".join(described) + "."}
    )
    return figure
