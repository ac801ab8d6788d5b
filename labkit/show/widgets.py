"""Widgets: figures that are redrawn in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy

import ipywidgets
import plotly
import plotly.graph_objects as go
import traitlets

from labkit.show.style import in_words

# The program that draws a figure in the browser, run by anywidget (Plotly 6 and later). If a widget's module has not
# arrived after two seconds, anywidget drops all later messages to it. Plotly's five megabytes take longer on a busy
# machine, so they come separately, once for all figures. Each change of `_widget_data` draws the whole figure again.
# Plotly's own messages, which change parts of a figure, are ignored: a message that arrives before the view is lost.
FRONT_END = """
const bundles = (globalThis.labkitPlotly ??= {});

async function load(manager, reference) {
  const bundle = await manager.get_model(reference.slice("IPY_MODEL_".length));
  const url = () => URL.createObjectURL(new Blob([bundle.get("text")], { type: "text/javascript" }));
  return (bundles[bundle.get("version")] ??= import(url()));
}

export default {
  async render({ model, el }) {
    const { default: create } = await load(model.widget_manager, model.get("_bundle"));
    const whole = { ...model, on: (name, then) => name.startsWith("change:_py2js") || model.on(name, then) };
    let clear;
    const draw = async () => {
      const plotly = await create();
      await plotly.initialize({ model: whole });
      clear = await plotly.render({ model: whole, el });
    };
    await draw();
    model.on("change:_widget_data", draw);
    return () => clear();
  },
};
"""


class Bundle(ipywidgets.Widget):
    """Plotly's own program for the browser, shared by all figures."""

    text = traitlets.Unicode().tag(sync=True)
    version = traitlets.Unicode(plotly.__version__).tag(sync=True)
    last: Bundle | None = None

    @classmethod
    def shared(cls) -> Bundle:
        """The same bundle every time, unless it was closed."""
        if cls.last is None or cls.last.comm is None:
            cls.last = cls(text=str(go.FigureWidget._esm))
        return cls.last


class FigureInPlace(go.FigureWidget):
    """A figure as a widget that is drawn from its first state on, and whose contents can be replaced.

    Plotly's own FigureWidget reaches the browser empty, and messages with its contents follow. They are lost if they
    arrive too early, for example because the figure is part of another widget, and after the page is loaded again.
    """

    _filled = False
    if hasattr(go.FigureWidget, "_esm"):  # since Plotly 6
        _bundle = traitlets.Instance(Bundle).tag(sync=True, **ipywidgets.widget_serialization)
        _esm = FRONT_END

        @traitlets.default("_bundle")
        def _share_bundle(self) -> Bundle:
            return Bundle.shared()

    def __init__(self, figure: go.Figure) -> None:
        super().__init__(figure)
        self._filled = True
        self.open()

    def open(self) -> None:
        """Sends the figure to the browser. ipywidgets calls this early, before the figure has any contents."""
        if self._filled:
            super().open()

    def replace(self, drawn: go.Figure) -> None:
        """Shows the contents of `drawn`, which may be a figure of another kind, in place of its own.

        Not by showing another figure, because Colab cannot update an output.
        """
        if not hasattr(self, "_widget_data"):  # before Plotly 6, whose messages are never lost
            return self._take(drawn)
        with self.hold_sync():  # a single message with the whole figure
            self._take(drawn)
            self._widget_layout, self._widget_data = deepcopy(self._layout), deepcopy(self._data)
        return None

    def _take(self, drawn: go.Figure) -> None:
        layout = drawn.layout.to_plotly_json()
        del layout["template"]  # the same in every figure, and slow to update
        gone = {part: None for part in self.layout.to_plotly_json() if part not in layout and part != "template"}
        self.data = ()
        with self.batch_update():
            self.update_layout({**gone, **layout}, overwrite=True)
        self.add_traces(drawn.data)


def controlled(draw: Callable[..., go.Figure], controls: Mapping[str, ipywidgets.Widget]) -> ipywidgets.VBox:
    """A figure under its controls and above its text alternative.

    Args:
        draw: makes the figure.
        controls: a widget for each argument of `draw`, by the argument's name.
    """

    def drawn() -> go.Figure:
        return draw(**{name: control.value for name, control in controls.items()})

    first = drawn()
    figure, words = FigureInPlace(first), ipywidgets.HTML(in_words(first))

    def redraw(_change: object) -> None:
        figure.replace(new := drawn())
        words.value = in_words(new)

    for control in controls.values():
        control.observe(redraw, names="value")
    return ipywidgets.VBox([*controls.values(), figure, words])


def slider(description: str, value: float, least: float, most: float, step: float) -> ipywidgets.FloatSlider:
    """A slider with room for its description."""
    wide = {"description_width": "130px"}
    return ipywidgets.FloatSlider(value, min=least, max=most, step=step, description=description, style=wide)
