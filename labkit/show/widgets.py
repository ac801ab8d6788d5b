"""Widgets: figures that are redrawn in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import ipywidgets
import plotly
import plotly.graph_objects as go
import traitlets
from IPython.display import HTML, display
from plotly.serializers import custom_serializers

from labkit.show.style import in_words

REVIVE = "<small>The figure below is interactive: if it stays empty or is not found, run this cell again.</small>"

# The program that draws a figure in the browser, run by anywidget (Plotly 6 and later). If a widget's module has not
# arrived after two seconds, anywidget drops all messages to it, and Plotly's five megabytes take longer on a busy
# machine. So this module is small, and fetches Plotly's own once for all figures. The contents of the figure are in a
# plain widget, which loses no message: each change of it draws the whole figure again. Plotly's own messages, which
# change parts of a figure, are ignored.
FRONT_END = """
const bundles = (globalThis.labkitPlotly ??= {});

function load(version, text) {
  const url = () => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return (bundles[version] ??= import(url()));
}

export default {
  async render({ model, el }) {
    const get = (name) => model.widget_manager.get_model(model.get(name).slice("IPY_MODEL_".length));
    const [bundle, drawn] = await Promise.all([get("_bundle"), get("_drawn")]);
    const { default: create } = await load(bundle.get("version"), bundle.get("text"));
    const whole = {
      ...model,
      get: (name) => (drawn.has(name) ? drawn : model).get(name),
      on: (name, then) => name.startsWith("change:_py2js") || model.on(name, then),
    };
    let clear;
    const draw = async () => {
      const plotly = await create();
      await plotly.initialize({ model: whole });
      clear = await plotly.render({ model: whole, el });
    };
    await draw();
    drawn.on("change:_widget_data", draw);
    return () => {
      drawn.off("change:_widget_data", draw);
      clear();
    };
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


class Drawn(ipywidgets.Widget):
    """The whole contents of a figure."""

    _widget_layout: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True, **custom_serializers)
    _widget_data: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True, **custom_serializers)


class FigureInPlace(go.FigureWidget):
    """A figure as a widget whose contents can be replaced.

    Plotly's own FigureWidget reaches the browser empty, and messages with its contents follow. They are lost if they
    arrive too early, for example because the figure is part of another widget, and after the page is loaded again.
    """

    if hasattr(go.FigureWidget, "_esm"):  # since Plotly 6
        _bundle = traitlets.Instance(Bundle).tag(sync=True, **ipywidgets.widget_serialization)
        _drawn = traitlets.Instance(Drawn, ()).tag(sync=True, **ipywidgets.widget_serialization)
        _esm = FRONT_END

        @traitlets.default("_bundle")
        def _share_bundle(self) -> Bundle:
            return Bundle.shared()

    def __init__(self, figure: go.Figure) -> None:
        super().__init__(figure)
        self._send_whole()

    def replace(self, drawn: go.Figure) -> None:
        """Shows the contents of `drawn`, which may be a figure of another kind, in place of its own.

        Showing another figure instead would not do, because Colab cannot update an output.
        """
        layout = drawn.layout.to_plotly_json()
        del layout["template"]  # the same in every figure, and slow to update
        gone = {part: None for part in self.layout.to_plotly_json() if part not in layout and part != "template"}
        with self.hold_sync() if hasattr(self, "_drawn") else nullcontext():  # spares ignored messages
            self.data = ()
            with self.batch_update():
                self.update_layout({**gone, **layout}, overwrite=True)
            self.add_traces(drawn.data)
        self._send_whole()

    def _send_whole(self) -> None:
        if hasattr(self, "_drawn"):
            with self._drawn.hold_sync():
                self._drawn._widget_layout, self._drawn._widget_data = deepcopy(self._layout), deepcopy(self._data)


def controlled(draw: Callable[..., go.Figure], controls: Mapping[str, ipywidgets.Widget]) -> ipywidgets.VBox:
    """A figure under its controls and above its text alternative. A line shown before it says how to revive it.

    Args:
        draw: makes the figure.
        controls: a widget for each argument of `draw`, by the argument's name.
    """

    def drawn() -> go.Figure:
        return draw(**{name: control.value for name, control in controls.items()})

    first = drawn()
    figure, words = FigureInPlace(first), ipywidgets.HTML(in_words(first))
    display(HTML(REVIVE))

    def redraw(_change: object) -> None:
        figure.replace(new := drawn())
        words.value = in_words(new)

    for control in controls.values():
        control.observe(redraw, names="value")
    return ipywidgets.VBox([*controls.values(), figure, words])


WIDE: dict[str, Any] = dict(style={"description_width": "130px"}, layout={"width": "560px"})  # of a control


def slider(description: str, value: float, least: float, most: float, step: float) -> ipywidgets.FloatSlider:
    """A slider with room for its description."""
    return ipywidgets.FloatSlider(value, min=least, max=most, step=step, description=description, **WIDE)


def steps_slider(description: str, values: Sequence[Any]) -> ipywidgets.SelectionSlider:
    """A slider over these values, numbers or names, that begins in their middle."""
    options = [(value if isinstance(value, str) else f"{value:,g}", value) for value in values]
    return ipywidgets.SelectionSlider(options=options, value=values[len(values) // 2], description=description, **WIDE)
