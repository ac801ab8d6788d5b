"""How nbgrader makes and grades this course. `nbgrader` reads this file when it is started in this folder."""

import sys
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbconvert.preprocessors.sanitize import SanitizeHTML
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
from tools.grading.collect import Platforms
from tools.grading.course import LATE, NOT_GRADED, ShowResults
from tools.grading.execute import STOPPED, OnlyExercises, RestoreCells, RunExercises

# Made by `make assignments`: source, release, submitted, autograded, gradebook.db
c.CourseDirectory.root = str(Path(__file__).parent / "assignments")
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", LATE, NOT_GRADED]
c.ZipCollectApp.collector_plugin = Platforms
c.ExtractorPlugin.zip_ext = []  # what students packed themselves stays packed, and is no notebook

# What a student finds instead of ### BEGIN SOLUTION ... ### END SOLUTION
c.ClearSolutions.code_stub = {"python": "# TODO: your code here\nraise NotImplementedError"}

# When a submission is graded: cells are restored, then those run that exercises need.
# The lists are nbgrader's, but for RestoreCells, OnlyExercises, and RunExercises in the place of Execute.
c.Execute.timeout = 30  # seconds for a cell
c.Execute.extra_arguments = ["--HistoryManager.hist_file=:memory:", "--log-level=ERROR"]
c.Execute.error_on_timeout = {
    "ename": STOPPED,
    "evalue": "it took too long: does a loop never end?",
    "traceback": [f"{STOPPED}: it took too long: does a loop never end?"],
}
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
    RunExercises,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveAutoGrades,
    AssignLatePenalties,
    SanitizeHTML,  # a script of a student would act for the teacher in formgrader
    CheckCellMetadata,
]
c.SanitizeHTML.enabled = True
c.GenerateFeedback.preprocessors = [GetGrades, ShowResults, CSSHTMLHeaderPreprocessor]

# The feedback's page is in tools/grading/page; formgrader uses its own template instead.
c.HTMLExporter.template_name = "page"
c.HTMLExporter.extra_template_basedirs = [str(Path(__file__).parent / "tools" / "grading")]
