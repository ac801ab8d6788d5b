"""Widgets: figures that are redrawn in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets
import plotly.graph_objects as go

from labkit.show.style import in_words


def controlled(draw: Callable[..., go.Figure], controls: Mapping[str, ipywidgets.Widget]) -> ipywidgets.VBox:
    """A figure under its controls and above its text alternative.

    Args:
        draw: makes the figure.
        controls: a widget for each argument of `draw`, by the argument's name.
    """

    def drawn() -> go.Figure:
        return draw(**{name: control.value for name, control in controls.items()})

    first = drawn()
    figure, words = go.FigureWidget(first), ipywidgets.HTML(in_words(first))

    def redraw(_change: object) -> None:
        replace(figure, new := drawn())
        words.value = in_words(new)

    for control in controls.values():
        control.observe(redraw, names="value")
    return ipywidgets.VBox([*controls.values(), figure, words])


def replace(figure: go.FigureWidget, drawn: go.Figure) -> None:
    """Makes `figure` show the contents of `drawn`, in place, because Colab cannot show a figure twice."""
    layout = drawn.layout.to_plotly_json()
    del layout["template"]  # the same in every figure, and slow to update
    gone = {part: None for part in figure.layout.to_plotly_json() if part not in layout and part != "template"}
    figure.data = ()
    with figure.batch_update():
        figure.update_layout({**gone, **layout}, overwrite=True)
    figure.add_traces(drawn.data)


def slider(description: str, value: float, least: float, most: float, step: float) -> ipywidgets.FloatSlider:
    """A slider with room for its description."""
    wide = {"description_width": "130px"}
    return ipywidgets.FloatSlider(value, min=least, max=most, step=step, description=description, style=wide)
