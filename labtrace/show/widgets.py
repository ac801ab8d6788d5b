"""Widgets: figures that are redrawn in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import ipywidgets
import plotly.graph_objects as go
import traitlets
from IPython.display import HTML, display
from plotly.offline import get_plotlyjs

from labtrace.show.style import DARK_THEME, in_words

REVIVE = "<small>If the figure below stays empty, is not found or does not react, run this cell again.</small>"

# The program that draws a figure in the browser, run by anywidget. It is small, because anywidget drops messages to a
# widget whose program arrives late: Plotly's five megabytes and the figure's contents are in widgets of their own.
FRONT_END = """
export default {
  async render({ model, el: place }) {
    // Not in the widget's own element: without its kernel that holds a sign, too, by which the drawing would grow, on
    // and on, since it becomes as high as its place.
    const el = place.appendChild(document.createElement("div"));
    const get = (name) => model.widget_manager.get_model(model.get(name).slice("IPY_MODEL_".length));
    const [program, drawn] = await Promise.all([get("_program"), get("_drawn")]);
    const Plotly = (globalThis.labkitPlotly ??= new Function("define", `${program.get("text")}; return Plotly`)());
    const draw = () => {
      const { data, layout } = JSON.parse(drawn.get("text"));
      return Plotly.react(el, data, layout, { displaylogo: false });
    };
    await draw();
    drawn.on("change:text", draw);
    // Not Plotly's `responsive`, whose drawing is as high as its place: nothing, once it has no height of its own.
    const resized = new ResizeObserver(() => Plotly.Plots.resize(el));
    resized.observe(el);
    const tell = () => el.classList.toggle("labtrace-busy", model.get("busy"));
    model.on("change:busy", tell);
    return () => {
      drawn.off("change:text", draw);
      model.off("change:busy", tell);
      resized.disconnect();
      Plotly.purge(el);
    };
  },
};
"""
# What a reader sees if the next figure takes longer than a moment.
LOOK = (
    DARK_THEME
    + """
.labtrace-busy { position: relative; }
.labtrace-busy::before {
  content: "Computing the next figure ..."; position: absolute; z-index: 1; left: 1em; padding: 0.3em 1em;
  color: #444444; background: white; border: 1px solid; animation: 0.5s step-end labtrace-wait;
}
@keyframes labtrace-wait { from { visibility: hidden; } }
"""
)


class Text(ipywidgets.Widget):
    """A text that the front end reads."""

    text = traitlets.Unicode().tag(sync=True)


class FigureInPlace(anywidget.AnyWidget):
    """A figure as a widget whose contents can be replaced.

    Plotly's own FigureWidget reaches the browser empty, and messages with its contents follow. They are lost if they
    arrive too early, for example because the figure is part of another widget, and after the page is loaded again.

    Attributes:
        figure: the one that is shown.
        busy: whether the next one is being computed, which readers are told.
    """

    _esm, _css = FRONT_END, LOOK
    busy = traitlets.Bool().tag(sync=True)
    _program = traitlets.Instance(Text).tag(sync=True, **ipywidgets.widget_serialization)
    _drawn = traitlets.Instance(Text, ()).tag(sync=True, **ipywidgets.widget_serialization)
    plotly: Text | None = None  # one for all figures

    def __init__(self, figure: go.Figure) -> None:
        if FigureInPlace.plotly is None or FigureInPlace.plotly.comm is None:
            FigureInPlace.plotly = Text(text=get_plotlyjs())
        super().__init__(_program=FigureInPlace.plotly)
        self.replace(figure)

    def replace(self, figure: go.Figure) -> None:
        """Shows `figure`, which may be of another kind.

        Showing another widget instead would not do, because Colab cannot update an output.
        """
        self.figure = figure
        self._drawn.text = figure.to_json()


def controlled(draw: Callable[..., go.Figure], controls: Mapping[str, ipywidgets.Widget]) -> ipywidgets.VBox:
    """A figure under its controls and above its text alternative. A line shown before it says how to revive it.

    Args:
        draw: makes the figure.
        controls: a widget for each argument of `draw`, by the argument's name.
    """

    def drawn() -> go.Figure:
        return draw(**{name: control.value for name, control in controls.items()})

    figure = FigureInPlace(drawn())
    words = ipywidgets.HTML(in_words(figure.figure))
    display(HTML(REVIVE))

    def redraw(_change: object) -> None:
        figure.busy = True
        try:
            figure.replace(drawn())
        finally:
            figure.busy = False
        words.value = in_words(figure.figure)

    for control in controls.values():
        control.observe(redraw, names="value")
    return ipywidgets.VBox([*controls.values(), figure, words])


WIDE: dict[str, Any] = dict(style={"description_width": "130px"}, layout={"width": "560px", "max_width": "98%"})


def slider(description: str, value: float, least: float, most: float, step: float) -> ipywidgets.FloatSlider:
    """A slider with room for its description."""
    return ipywidgets.FloatSlider(value, min=least, max=most, step=step, description=description, **WIDE)
