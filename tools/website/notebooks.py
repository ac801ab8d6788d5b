"""Executed notebooks as pages: each output becomes HTML that needs neither Python nor Jupyter."""

import html
from typing import Any

import nbformat
from nbformat import NotebookNode

from tools.website.execute import STATES
from tools.website.figures import PLOTLY, figure_html

WIDGET = "application/vnd.jupyter.widget-view+json"
NUMPY = {"float64": "f8", "float32": "f4", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1"}
TWIN = "<p><small>In JupyterLab and Colab you can move the controls of this figure. Here it is as at first.</small></p>"
FILES = "<details><summary>Open in Perfetto"  # of labkit.show.trace_explorer: files beside the notebook
REVIVE = "<small>The figure below is interactive"  # the beginning of labkit.show.widgets.REVIVE
FOLDED = {"setup": "Setup", "claims": "Checked: the numbers in the text above", "solution": "A solution"}


def page(notebook: NotebookNode) -> NotebookNode:
    """A notebook that was run, with plain outputs; setup, solutions and checks of the text are folded away."""
    states = notebook.metadata.get("widgets", {}).get(STATES, {}).get("state", {})
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        words = folded(cell)
        if words:
            cell.metadata["mystnb"] = {"code_prompt_show": words, "code_prompt_hide": words}
            cell.metadata["tags"] = ["hide-input"]
        if words == FOLDED["setup"]:
            cell.outputs = []  # where labkit lay
        cell.outputs = [plain for output in cell.outputs if (plain := plain_output(output, states))]
        cell.id = f"cell-{number}"
    notebook.metadata = NotebookNode({name: notebook.metadata[name] for name in ("kernelspec", "language_info")})
    return notebook


def folded(cell: NotebookNode) -> str:
    """The words that stand for a cell's code; empty if the code is shown."""
    if cell.metadata.get("nbgrader", {}).get("solution") or "### BEGIN SOLUTION" in cell.source:
        return FOLDED["solution"]
    if cell.source.startswith("# @title Setup"):
        return FOLDED["setup"]
    return FOLDED["claims"] if "claims" in cell.metadata.get("tags", []) else ""


def plain_output(output: NotebookNode, states: dict[str, Any]) -> NotebookNode | None:
    """An output of a cell as text or HTML; None if there is nothing to see without a kernel."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    if "data" not in output:
        return output
    data = output["data"]
    if PLOTLY in data:
        shown = figure_html(data[PLOTLY])
    elif WIDGET in data:
        shown = widget_html(data[WIDGET]["model_id"], states)
    elif str(data.get("text/html", "")).startswith((REVIVE, FILES)):
        shown = TWIN if data["text/html"].startswith(REVIVE) else ""
    else:
        return output
    return nbformat.v4.new_output("display_data", {"text/html": shown}) if shown else None


def widget_html(model: str, states: dict[str, Any]) -> str:
    """The contents of a widget, as they were last, without a kernel."""
    if (key := model.removeprefix("IPY_MODEL_")) not in states:
        return ""
    state = states[key]["state"]
    if hidden(state.get("layout") or "", states):
        return ""
    if "_drawn" in state:
        drawn = states[state["_drawn"].removeprefix("IPY_MODEL_")]
        restore_arrays(drawn)
        return figure_html({"data": drawn["state"]["_widget_data"], "layout": drawn["state"]["_widget_layout"]})
    if "outputs" in state:
        return "".join(outputs_html(output, states) for output in state["outputs"])
    if "children" in state:
        kinds = [states.get(child.removeprefix("IPY_MODEL_"), {}).get("model_name", "") for child in state["children"]]
        if any("Progress" in kind for kind in kinds):
            return ""  # a bar, and numbers that have done their service
        return "".join(widget_html(child, states) for child in state["children"])
    if states[key]["model_name"].startswith("HTML"):
        return f"<div>{state['value']}</div>" if state["value"] else ""
    if not state.get("description"):
        return ""
    return f'<p class="control">{html.escape(state["description"])}: <b>{html.escape(chosen(state))}</b></p>'


def hidden(layout: str, states: dict[str, Any]) -> bool:
    """Whether a widget's layout hides it."""
    state = states.get(layout.removeprefix("IPY_MODEL_"), {"state": {}})["state"]
    return state.get("display") == "none"


def chosen(state: dict[str, Any]) -> str:
    """The value of a control."""
    if "_options_labels" in state:
        return state["_options_labels"][state["index"]]
    value = state.get("value", "")
    values = value if isinstance(value, list) else [value]
    return " to ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def outputs_html(output: dict[str, Any], states: dict[str, Any]) -> str:
    """An output inside a widget."""
    plain = plain_output(nbformat.from_dict(output), states)
    if plain is None or plain.output_type == "stream":
        return f"<pre>{html.escape(plain['text'])}</pre>" if plain else ""
    return plain["data"].get("text/html") or f"<pre>{html.escape(plain['data'].get('text/plain', ''))}</pre>"


def restore_arrays(widget: dict[str, Any]) -> None:
    """Put the arrays of a widget, which travel beside its state, in their places, in the form that Plotly reads."""
    for buffer in widget.pop("buffers", []):
        place = widget["state"]
        for step in buffer["path"][:-2]:
            place = place[step]
        name = buffer["path"][-2]
        place[name] = {"dtype": NUMPY[place[name]["dtype"]], "bdata": buffer["data"]}
