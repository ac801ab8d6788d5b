"""The page of feedback, whose template is in the folder `page`."""

from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor

from tools.grading.course import read
from tools.grading.execute import exercise_of


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
