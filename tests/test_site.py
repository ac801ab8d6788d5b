"""The site: figures and widgets of a notebook become pages that need no kernel, no server and no network."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

from tools.website import figures, notebooks, pages

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")


def output(data):
    return nbformat.v4.new_output("display_data", data)


def notebook(*outputs, states=None):
    cell = nbformat.v4.new_code_cell("draw()", outputs=[output(data) for data in outputs])
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), cell])
    made.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made.metadata["language_info"] = {"name": "python"}
    made.metadata["widgets"] = {notebooks.STATES: {"state": states or {}}}
    return nbformat.from_dict(made)


def figure(**layout):
    return {"data": [{"type": "scatter", "y": [1, 2]}], "layout": {"meta": {"text": "a < b"}, **layout}}


def shown(made):
    return [one["data"]["text/html"] for one in notebooks.page(made).cells[1].outputs]


def test_a_figure_keeps_its_contents_and_its_words():
    (page,) = shown(notebook({figures.PLOTLY: figure(title="</script>", template={"layout": {}})}))
    assert 'aria-label="a &lt; b"' in page and '"y":[1,2]' in page
    assert page.count("</script>") == 1, "a title cannot end the figure"
    assert "template" not in page


def test_a_widget_is_shown_as_it_is_at_first():
    states = {
        "box": {
            "model_name": "VBoxModel",
            "state": {"children": ["IPY_MODEL_menu", "IPY_MODEL_gone", "IPY_MODEL_fig"]},
        },
        "menu": {
            "model_name": "DropdownModel",
            "state": {"description": "figure", "_options_labels": ["idle", "<queue>"], "index": 1},
        },
        "none": {"model_name": "LayoutModel", "state": {"display": "none"}},
        "gone": {"model_name": "TextModel", "state": {"description": "hidden", "layout": "IPY_MODEL_none"}},
        "fig": {"model_name": "AnyModel", "state": {"_drawn": "IPY_MODEL_drawn"}},
        "drawn": {
            "model_name": "WidgetModel",
            "state": {"_widget_data": [{"x": {"dtype": "float64", "shape": [1]}}], "_widget_layout": {}},
            "buffers": [{"path": ["_widget_data", 0, "x", "buffer"], "encoding": "base64", "data": "AAAAAAAA8D8="}],
        },
    }
    (page,) = shown(notebook({notebooks.WIDGET: {"model_id": "box"}}, states=states))
    assert "figure: <b>&lt;queue&gt;</b>" in page and "hidden" not in page
    assert '"x":{"dtype":"f4","bdata":"AACAPw=="}' in page, "the array is in its place, in fewer bytes"


def test_numbers_lose_no_more_than_a_screen_could_show():
    times = 1e9 + np.arange(100) / 8  # 32 bits would put them all on one point
    exact = {"dtype": "f8", "bdata": figures.base64.b64encode(times.tobytes()).decode()}
    assert figures.thin(exact) == exact
    heights = np.linspace(0, 1, 100).tolist()
    rounded = figures.thin(heights)
    assert rounded != heights and np.allclose(rounded, heights, atol=1e-4)
    assert figures.thin([1e-12, 2e-12, None, "a"]) == [1e-12, 2e-12, None, "a"]


def test_sphinx_makes_a_page_that_asks_for_nothing_outside(tmp_path):
    pytest.importorskip("myst_nb", reason="the site's packages are not installed: make site")
    pytest.importorskip("furo", reason="the site's packages are not installed: make site")
    source = tmp_path / "source"
    source.mkdir()
    made = notebooks.page(notebook({figures.PLOTLY: figure()}, {figures.PLOTLY: figure()}))
    made.cells[0].source += "\n\n$x_1 = \\big(\\frac{1}{2}\\big)$"
    nbformat.write(made, source / "index.ipynb")
    pages.write_scripts(source / "scripts")
    conf = ROOT / "tools" / "website"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-c", conf, source, tmp_path / "site"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert page.count('class="plotly-figure"') == 2 and "<mfrac>" in page
    assert len(list((tmp_path / "site").rglob("plotly*.js"))) == 1
    assert not OUTSIDE.search(page)


def test_every_package_with_public_names_has_a_page():
    modules = {module for of_page in pages.API.values() for module in of_page}
    stubs = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "labkit").rglob("__init__.pyi")}
    assert stubs <= modules
