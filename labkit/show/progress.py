"""The losses and the pictures of a training run, while it trains and afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import display
from torch import Tensor
from torchvision.utils import make_grid

from labkit.data.batches import to_uint8
from labkit.models.model import run_network
from labkit.training.run import Run
from labtrace.show.style import COLOURS
from labtrace.show.widgets import FigureInPlace

WINDOW = 25  # steps of the moving mean
SCALE = 2  # screen pixels for a picture's pixel
BORDER = 2  # pixels around each picture


class LiveLosses:
    """A loss plot that grows while a run trains: show `figure`, then pass this as ``labkit.fit(callbacks=[...])``.

    Args:
        steps: the length of the run, which sets the x axis.
    """

    def __init__(self, steps: int) -> None:
        self.figure = FigureInPlace(loss_curves({}, steps))

    def __call__(self, run: Run) -> None:
        self.figure.replace(loss_curves(run.losses, run.steps))


class FilmStrip:
    """Translations of the same pictures during a run, a row whenever the losses are reported.

    Pass it as ``labkit.fit(callbacks=[...])``. The rows appear in the output of the cell that trains.

    Args:
        pictures: test pictures of domain A, (N, 3, H, W) in [-1, 1]. They are the first row.
    """

    def __init__(self, pictures: Tensor) -> None:
        self.rows = {"test pictures": pictures}
        self.shown: FigureInPlace | None = None

    def __call__(self, run: Run) -> None:
        pictures = self.rows["test pictures"]
        self.rows[f"after {run.done} steps"] = run_network(run.model.translator("AtoB"), pictures)
        figure = picture_rows(
            self.rows, "Translations of the test pictures", f"Rows of pictures: {', '.join(self.rows)}."
        )
        if self.shown is None:
            self.shown = FigureInPlace(figure)
            display(self.shown)
        self.shown.replace(figure)


def loss_curves(losses: Mapping[str, Sequence[float]], steps: int) -> go.Figure:
    """Every loss of a run over its steps, as a moving mean over 25 steps, solid for domain A and dashed for B.

    Cycle, identity and reconstruction losses fall as translations become faithful. The two adversarial losses, G and
    D, do not have to fall, because each depends on how good the opponent is.

    Args:
        losses: by name, such as "cycle_A", one value a step: `Run.losses`.
        steps: the length of the run, which sets the x axis.
    """
    figure = go.Figure()
    smooth = pandas.DataFrame(dict(losses)).rolling(WINDOW, min_periods=1).mean()
    for name, values in smooth.items():
        term, _, domain = name.partition("_")
        line = dict(color=COLOURS.get(term), dash="dash" if domain == "B" else "solid")
        figure.add_scatter(x=values.index + 1, y=values, name=name, line=line)
    last = ", ".join(f"{name} {values.iloc[-1]:.2f}" for name, values in smooth.items() if len(values))
    figure.update_layout(
        title=f"Weighted training losses, mean of {WINDOW} steps",
        xaxis=dict(title="step", range=[0, steps]),
        yaxis=dict(title="loss (no unit, log scale)", type="log", tickformat="~g", dtick="D2"),
        height=420,
        meta={"text": f"{len(losses)} losses over the steps. Last values: {last or 'none yet'}."},
    )
    return figure


def picture_rows(rows: Mapping[str, Tensor], title: str, text: str) -> go.Figure:
    """Rows of pictures under their names.

    Args:
        rows: by name, (N, 3, H, W), ``uint8`` or floats in [-1, 1]. All pictures have the same size.
        title: of the figure.
        text: the text alternative: a description of the pictures.
    """
    pictures = [row if not row.is_floating_point() else to_uint8(row) for row in rows.values()]
    height = pictures[0].shape[-2] + BORDER
    lines = [make_grid(row, nrow=len(row), padding=BORDER, pad_value=255) for row in pictures]
    lines[:-1] = [line[:, :height] for line in lines[:-1]]  # the border below is that above the next row
    grid = np.concatenate([line.permute(1, 2, 0).numpy() for line in lines]).repeat(SCALE, 0).repeat(SCALE, 1)
    figure = px.imshow(grid, binary_string=True, title=title)
    ticks = [(i + 0.5) * height * SCALE for i in range(len(rows))]
    figure.update_yaxes(tickvals=ticks, ticktext=list(rows), showgrid=False, zeroline=False, constraintoward="top")
    figure.update_xaxes(visible=False, constraintoward="left")  # in a narrow page all of them are smaller
    figure.update_traces(hoverinfo="skip", hovertemplate=None)
    figure.update_layout(height=grid.shape[0] + 70, margin=dict(l=140, r=10, t=50, b=10), meta={"text": text})
    return figure
