"""What a teacher and a student see of a submission: formgrader's pages and the feedback, in which no script runs."""

from functools import cache

import bleach
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor

from tools.grading.course import read
from tools.grading.execute import exercise_of

TAGS = bleach.ALLOWED_TAGS | set(
    "p br hr h1 h2 h3 h4 h5 h6 pre del sub sup div span img table thead tbody tr th td details summary".split()
)
PICTURES = ("data:image/png;", "data:image/jpeg;", "data:image/gif;")  # pasted into a cell: nothing is loaded


def clean_html(html: str | bytes) -> str:
    """HTML without scripts and without anything that a browser loads; what is left out appears as text."""
    text = html.decode() if isinstance(html, bytes) else str(html)
    return bleach.clean(text, TAGS, {"a": _is_link, "img": _is_picture}, protocols={"http", "https", "mailto", "data"})


def _is_link(_tag: str, name: str, value: str) -> bool:
    return name == "title" or name == "href" and not value.strip().lower().startswith("data:")


def _is_picture(_tag: str, name: str, value: str) -> bool:
    return name in ("alt", "title") or name == "src" and value.startswith(PICTURES)


@pass_context
def markdown2html(context: Context, source: str) -> str:
    """nbconvert's filter of this name, with the pictures pasted into the cell, cleaned."""
    return clean_html(_exporter().markdown2html(context, source))


@cache
def _exporter() -> HTMLExporter:
    return HTMLExporter()


class ShowResults(NbGraderPreprocessor):
    """Keeps only the exercises in a page of feedback, and collects the results for its top."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The answers and checks; `resources["results"]` has the exercises."""
        nb.cells = [cell for cell in nb.cells if exercise_of(cell)]
        names = resources["nbgrader"]
        with Gradebook(names["db_url"]) as gradebook:
            submission = gradebook.find_submission_notebook(names["notebook"], names["assignment"], names["student"])
            resources["results"] = read(submission, nb.cells)
        return nb, resources
