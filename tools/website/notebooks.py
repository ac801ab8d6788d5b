"""Notebooks as pages: they run, and each output becomes HTML that needs neither Python nor Jupyter."""

import hashlib
import html
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import plotly.io
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions
from traitlets.config import PyFileConfigLoader

import labtrace.show.style  # noqa: F401  registers the template of labkit's figures
from labtrace.show.widgets import REVIVE
from tools.assignments import ROOT, without_our_own

WORK = ROOT / "out" / "website"
AT_A_TIME = 2  # notebooks that run; each computes in one thread
PLOTLY, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
STATES = "application/vnd.jupyter.widget-state+json"
PROGRAM = '\n\n<script src="../_static/plotly.min.js"></script>\n'  # once on each page, before its figures
TEMPLATE = plotly.io.templates["plotly_white+labkit"].to_plotly_json()
STILL = "<p><small>In JupyterLab and Colab this figure has controls to move. Here it is as at first.</small></p>"


def executed(path: Path) -> Path:
    """A notebook with its outputs and widgets: from the last time, unless something that they depend on has changed."""
    folders = ("labtrace", "labkit", "labcourse", "data")
    made_from = [path, *(file for folder in folders for file in sorted((ROOT / folder).rglob("*.*")))]
    digest = hashlib.sha256()
    for file in made_from:
        if file.is_file() and file.suffix != ".pyc":
            digest.update(file.read_bytes())
    done = WORK / "executed" / digest.hexdigest() / path.name
    if not done.exists():
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            # Predictions of the clone's own ledger stay, and several notebooks run at a time.
            os.environ.update(LABKIT_LEDGER=str(Path(folder) / "ledger.json"), OMP_NUM_THREADS="1")
            NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(path.parent)}}).execute()
        done.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, done)
        print(path.stem, flush=True)
    return done


def page(notebook: NotebookNode) -> NotebookNode:
    """A notebook that was run, with plain outputs, and without what students are to find out."""
    notebook = without_solutions(nbformat.from_dict(notebook))
    states = notebook.metadata.get("widgets", {}).get(STATES, {}).get("state", {})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        if cell.cell_type != "code":
            continue
        if cell.source.startswith("# @title Setup"):
            cell.metadata["mystnb"] = {"code_prompt_show": "Setup", "code_prompt_hide": "Setup"}
            cell.metadata["tags"] = ["hide-input"]
        cell.outputs = [plain for output in cell.outputs if (plain := plain_output(output, states))]
    notebook.cells[0].source += PROGRAM
    notebook.metadata = NotebookNode({name: notebook.metadata[name] for name in ("kernelspec", "language_info")})
    return notebook


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """As students get it, by nbgrader; outputs of other cells stay, since the figures are among them."""
    notebook = without_our_own(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code" and "### BEGIN SOLUTION" in cell.source:
            cell.outputs = []
    config = PyFileConfigLoader(str(ROOT / "nbgrader_config.py")).load_config()
    for clear in (ClearSolutions, ClearHiddenTests):
        notebook, _ = clear(config=config).preprocess(notebook, {})
    return notebook


def plain_output(output: NotebookNode, states: dict[str, Any]) -> NotebookNode | None:
    """An output of a cell as text or HTML; None if there is nothing to see without a kernel."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    data = output.get("data", {})
    if PLOTLY in data:
        shown = figure_html(data[PLOTLY])
    elif WIDGET in data:
        shown = widget_html(data[WIDGET]["model_id"], states)
    elif str(data.get("text/html", "")) == REVIVE:
        shown = STILL
    else:
        return output
    return nbformat.v4.new_output("display_data", {"text/html": shown}) if shown else None


def figure_html(figure: dict[str, Any]) -> str:
    """A figure, given as its "data" and "layout", as HTML.

    Its text alternative, in `layout.meta["text"]`, becomes the label that screen readers speak.
    """
    words = html.escape((figure["layout"].get("meta") or {}).get("text", "Figure"))
    contents = {"data": figure["data"], "layout": {"template": TEMPLATE} | figure["layout"]}
    options = dict(responsive=True, displaylogo=False)
    drawn = plotly.io.to_html(contents, options, include_plotlyjs=False, full_html=False, validate=False)
    return f'<figure class="plotly-figure" aria-label="{words}">{drawn}</figure>'


def widget_html(model: str, states: dict[str, Any]) -> str:
    """The figures and texts in a widget, as they were last, without a kernel."""
    widget = states.get(model.removeprefix("IPY_MODEL_"), {"state": {}, "model_name": ""})
    state = widget["state"]
    if "_drawn" in state:  # of labtrace.show.widgets.FigureInPlace
        return figure_html(json.loads(states[state["_drawn"].removeprefix("IPY_MODEL_")]["state"]["text"]))
    if widget["model_name"] == "HTMLModel":
        return f"<div>{state['value']}</div>"
    return "".join(widget_html(child, states) for child in state.get("children", []))
