"""How nbgrader makes and grades this course. `nbgrader` reads this file when it is started in this folder."""

import sys
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    GetGrades,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)

sys.path.insert(0, str(Path(__file__).parent))  # nbgrader may be started elsewhere
from tools.grading.collect import BACK, BY_HAND, LATE
from tools.grading.execute import RestoreCells, RunExercises
from tools.grading.feedback import ShowResults, clean_html, markdown2html

# Made by `make assignments`: source, release, submitted, autograded, gradebook.db
c.CourseDirectory.root = str(Path(__file__).parent / "assignments")
# What tools.grading.collect leaves beside a submission is no feedback
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", LATE, BY_HAND, BACK]

# What a student finds instead of ### BEGIN SOLUTION ... ### END SOLUTION
c.ClearSolutions.code_stub = {"python": "# TODO: your code here\nraise NotImplementedError"}

# When a submission is graded: cells are restored, then the exercises run in a sandbox, each in a new process.
# The lists are nbgrader's, but for the course's own first one of sanitize_preprocessors and RunExercises for Execute.
c.Autograde.sanitize_preprocessors = [
    RestoreCells,
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    RunExercises,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveAutoGrades,
    AssignLatePenalties,
    CheckCellMetadata,
]
c.GenerateFeedback.preprocessors = [GetGrades, ShowResults, CSSHTMLHeaderPreprocessor]

# What students wrote runs no script in a teacher's browser, where it would act for the teacher in Jupyter.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {"markdown2html": markdown2html, "clean_html": clean_html}

# The feedback's page is in tools/grading/page; formgrader uses its own template instead.
c.HTMLExporter.template_name = "page"
c.HTMLExporter.extra_template_basedirs = [str(Path(__file__).parent / "tools" / "grading")]
