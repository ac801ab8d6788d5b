"""The losses and the pictures of a training run, while it trains and afterwards."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO

import pandas
import plotly.graph_objects as go
from IPython.display import HTML
from PIL import Image
from torch import Tensor
from torchvision.utils import make_grid

from labkit.data.batches import to_uint8
from labkit.training.run import Run
from labtrace.show.style import COLOURS
from labtrace.show.widgets import FigureInPlace

WINDOW = 25  # steps of the moving mean
SCALE = 2  # screen pixels for a picture's pixel
BORDER = 2  # pixels around each picture
WIDEST = 640  # screen pixels for a row


class LiveLosses:
    """A loss plot that grows while a run trains: show `figure`, then pass this as ``labkit.fit(callbacks=[...])``.

    Args:
        steps: the length of the run, which sets the x axis.
    """

    def __init__(self, steps: int) -> None:
        self.figure = FigureInPlace(loss_curves({}, steps))

    def __call__(self, run: Run) -> None:
        self.figure.replace(loss_curves(run.losses, run.steps))


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


def picture_rows(rows: Mapping[str, Tensor], title: str, text: str) -> HTML:
    """Rows of pictures, each below its name, as a figure in HTML. In a narrow page all pictures are smaller.

    Args:
        rows: by name, (N, 3, H, W), ``uint8`` or floats in [-1, 1]. All rows have the same shape.
        title: of the figure.
        text: the text alternative: a description of the pictures.
    """
    shown = [f"<figcaption><b>{escape(title)}</b></figcaption>"]
    for name, row in rows.items():
        pictures = to_uint8(row) if row.is_floating_point() else row
        grid = make_grid(pictures, nrow=len(pictures), padding=BORDER, pad_value=255)
        large = grid.repeat_interleave(SCALE, -1).repeat_interleave(SCALE, -2)
        png = BytesIO()
        Image.fromarray(large.permute(1, 2, 0).cpu().numpy()).save(png, "PNG")
        source = f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"
        shown.append(f'{escape(name)}<br><img src="{source}" alt="" style="max-width: min({WIDEST}px, 100%)"><br>')
    return HTML(f'<figure role="img" aria-label="{escape(text)}" style="margin: 0">{"".join(shown)}</figure>')
