"""The site: figures and widgets of a notebook become pages that need no kernel, no server and no network."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools.notebooks import CLAIMS_TITLE
from tools.website import notebooks, pages

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")
SOLUTION = re.compile(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)


def notebook(*outputs, states=None):
    drawn = [nbformat.v4.new_output("display_data", data) for data in outputs]
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("draw()", outputs=drawn)]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made.metadata["language_info"] = {"name": "python"}
    made.metadata["widgets"] = {notebooks.STATES: {"state": states or {}}}
    return nbformat.from_dict(made)


def figure(**layout):
    return {"data": [{"type": "scatter", "y": [1, 2]}], "layout": {"meta": {"text": "a < b"}, **layout}}


def shown(made):
    return [one["data"]["text/html"] for one in notebooks.page(made).cells[1].outputs]


def test_a_figure_keeps_its_contents_and_its_words():
    (page,) = shown(notebook({notebooks.PLOTLY: figure(title="</script>")}))
    assert 'aria-label="a &lt; b"' in page and '"y":[1,2]' in page
    assert page.count("</script>") == 1, "a title cannot end the figure"


def test_a_widget_is_shown_as_it_is_at_first():
    states = {
        "box": {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_words", "IPY_MODEL_fig"]}},
        "words": {"model_name": "HTMLModel", "state": {"value": "<b>in words</b>"}},
        "fig": {"model_name": "AnyModel", "state": {"_drawn": "IPY_MODEL_drawn"}},
        "drawn": {"model_name": "WidgetModel", "state": {"text": '{"data": [{"y": [1, 2]}], "layout": {}}'}},
    }
    (page,) = shown(notebook({notebooks.WIDGET: {"model_id": "box"}}, states=states))
    assert "<b>in words</b>" in page and '"y":[1,2]' in page


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_students_pages_have_no_solution_and_no_hidden_test(path):
    course = nbformat.read(path, as_version=4)
    answers = [answer for cell in course.cells for answer in SOLUTION.findall(cell.source)]
    students = "\n".join(cell.source for cell in notebooks.page(course).cells)
    assert answers and not [answer for answer in answers if answer.strip() in students]
    assert "### BEGIN" not in students and "check.hidden" not in students and CLAIMS_TITLE not in students


def test_what_is_for_teachers_is_not_among_the_pages(tmp_path):
    pages.gather([], tmp_path / "site")
    names = {path.name for path in (tmp_path / "site").rglob("*")}
    assert not {"TEACHING.md", "sessions.md", "classroom.md", "wider.py"} & names and "cyclegan.py" in names
    text = "[a](../TEACHING.md#x), [b](../data/speedrun/wider.py), [c](../README.md)"
    assert pages.linked(text) == "a, b, [c](../index.md)"
    texts = "".join(path.read_text() for path in (tmp_path / "site").rglob("*.md"))
    assert not re.search(r"\]\([./]*lab\w+/[^)]*\.py", texts), "a link to the source of a package"
    assert not list((tmp_path / "site").glob("lab*/**/*.py"))


def built(folder):
    """A site with a page of two figures and a formula; its notebook's page."""
    pytest.importorskip("myst_nb", reason="the site's packages are not installed: make site")
    pytest.importorskip("furo", reason="the site's packages are not installed: make site")
    source = folder / "source"
    (source / "notebooks").mkdir(parents=True)
    (source / "index.md").write_text("# Start\n\n```{toctree}\nnotebooks/page\n```\n")
    made = notebook({notebooks.PLOTLY: figure()}, {notebooks.PLOTLY: figure()})
    made.cells[0].source += "\n\n$x_1 = \\big(\\frac{1}{2}\\big)$"
    nbformat.write(notebooks.page(made), source / "notebooks" / "page.ipynb")
    conf = ROOT / "tools" / "website"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-c", conf, source, folder / "site"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
    return folder / "site" / "notebooks" / "page.html"


def test_sphinx_makes_a_page_that_asks_for_nothing_outside(tmp_path):
    file = built(tmp_path)
    page = file.read_text(encoding="utf-8")
    assert page.count('class="plotly-figure"') == 2 and "<mfrac>" in page
    (program,) = re.findall(r'src="(\.\./_static/plotly[^"]*)"', page)
    assert (file.parent / program).stat().st_size > 1e6
    assert not OUTSIDE.search(page)
