"""How nbgrader makes and grades this course. `nbgrader` reads this file when it is started in this folder."""

import sys
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    Execute,
    GetGrades,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)

sys.path.insert(0, str(Path(__file__).parent))  # nbgrader may be started elsewhere
from tools.grading.execute import OnlyExercises, RestoreCells
from tools.grading.feedback import ShowResults, clean_html, markdown2html

# Made by `make assignments`: source, release, submitted, autograded, gradebook.db
c.CourseDirectory.root = str(Path(__file__).parent / "assignments")
# `nbgrader zip_collect NOTEBOOK`: what Canvas calls the files in its zip; docs/classroom.md has those of other platforms
c.FileNameCollectorPlugin.named_regexp = (
    r".*/(?P<student_id>[^_]+)_(?:LATE_)?\\d+_\\d+_(?P<file_id>.+?)(?:-\\d+)?\\.ipynb"
)

# What a student finds instead of ### BEGIN SOLUTION ... ### END SOLUTION
c.ClearSolutions.code_stub = {"python": "# TODO: your code here\nraise NotImplementedError"}

# When a submission is graded: cells are restored, then those run that exercises need.
# The lists are nbgrader's, but for the course's own first one of each.
c.Execute.timeout = 120
c.Execute.interrupt_on_timeout = True
c.Autograde.sanitize_preprocessors = [
    RestoreCells,
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    OnlyExercises,
    Execute,
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
