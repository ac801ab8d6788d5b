"""Widgets: figures that change in place."""

from __future__ import annotations

import plotly.graph_objects as go

from labkit.show.figures import loss_curves
from labkit.training import Run


class LiveLosses:
    """A loss plot that grows while a run trains: show `figure`, then pass this as ``labkit.fit(on_report=...)``."""

    def __init__(self, steps: int):
        self.figure = go.FigureWidget(loss_curves({}, steps))

    def __call__(self, run: Run) -> None:
        drawn = loss_curves(run.losses, run.steps)
        with self.figure.batch_update():  # updated, not shown again: Colab cannot show a figure twice
            if not self.figure.data:
                self.figure.add_traces(drawn.data)
            for mine, new in zip(self.figure.data, drawn.data, strict=True):
                mine.x, mine.y = new.x, new.y
            self.figure.layout.meta = drawn.layout.meta
