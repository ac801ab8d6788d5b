"""Figures in the feedback: nbconvert shows none of Plotly's, so they become pictures."""

import base64
import importlib.util

import plotly.graph_objects as go
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

PLOTLY = "application/vnd.plotly.v1+json"


class DrawFigures(NbGraderPreprocessor):
    """Draws with Kaleido and Chrome where both are here (`make gallery` installs Kaleido).

    Elsewhere the page gets Plotly's own program, once: it works without network, but weighs 5 MB.
    """

    kaleido = importlib.util.find_spec("kaleido") is not None

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with a picture, or else a piece of HTML, in the place of each figure."""
        program = True
        for data in (output["data"] for cell in nb.cells for output in cell.get("outputs", []) if "data" in output):
            try:
                figure = go.Figure({name: data[PLOTLY][name] for name in ("data", "layout")}, skip_invalid=True)
            except (ValueError, TypeError, LookupError):
                continue  # not a figure
            del data[PLOTLY]
            if picture := self.draw(figure):
                data["image/png"] = picture
            else:
                data["text/html"] = figure.to_html(include_plotlyjs=program, full_html=False)
                program = False
        return nb, resources

    def draw(self, figure: go.Figure) -> str:
        """A figure as PNG in base64, "" where it cannot be drawn."""
        try:
            return base64.b64encode(figure.to_image("png", width=700, height=400)).decode() if self.kaleido else ""
        except Exception as error:  # Kaleido's and Chrome's have many kinds
            self.log.warning("Kaleido cannot draw here: %s", error)
            type(self).kaleido = False
            return ""
