"""Widgets: figures that change in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets
import plotly.graph_objects as go

from labkit.show.figures import in_words, loss_curves
from labkit.training.fit import Run


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


def controlled(draw: Callable[..., go.Figure], controls: Mapping[str, ipywidgets.Widget]) -> ipywidgets.VBox:
    """A figure under its controls, which are `draw`'s arguments by name, and above its text alternative."""
    figure, words = go.FigureWidget(), ipywidgets.HTML()

    def redraw(_change: object = None) -> None:
        drawn = draw(**{name: control.value for name, control in controls.items()})
        replace(figure, drawn)
        words.value = in_words(drawn)

    redraw()
    for control in controls.values():
        control.observe(redraw, names="value")
    return ipywidgets.VBox([*controls.values(), figure, words])


def replace(figure: go.FigureWidget, drawn: go.Figure) -> None:
    """Makes `figure` show what `drawn` does, which may be of another kind, in place: Colab cannot show it again."""
    layout = drawn.layout.to_plotly_json()
    del layout["template"]  # the same in every figure, and slow to update
    gone = {part: None for part in figure.layout.to_plotly_json() if part not in layout and part != "template"}
    figure.data = ()
    with figure.batch_update():
        figure.update_layout({**gone, **layout}, overwrite=True)
    figure.add_traces(drawn.data)
