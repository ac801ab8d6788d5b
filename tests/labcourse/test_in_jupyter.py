"""What a person reads in JupyterLab when something is not right: the message, and no line of the packages."""

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import signal
import labcourse, labkit, labtrace
from labcourse import check
from labkit.errors import CheckpointError, DataError, LabkitError, TrainingError
from labkit.simulate.cuda_stubs import StreamError
from labkit.training.interrupts import Stopped
from labtrace.errors import LabError, TraceError
from labtrace.events.reading import NoTraceError
"""
KINDS = "LabError LabkitError TraceError NoTraceError DataError CheckpointError TrainingError StreamError".split()
ERRORS = [f"raise {name}('what to do')" for name in KINDS]
ERRORS += ["raise Stopped('what to do', signal.SIGINT)", "check.busy(lambda begin, end: 0)", "check.cycle_los"]
ERRORS += ["labcourse.sparring_partner('two')", "labcourse.gpu_trace(batch_size=4)", "labtrace.Trace('nofile.json')"]
OLD, UNREADABLE, CHECK = "def busy(a, b):\n    return 3", "def busy(a, b)\n    return 25", "check.busy(busy)"
VALUE, OWN = "check.busy(7)", "def busy(begin, end):\n    return 4\ncheck.busy(busy)"  # tested in its own cell


@pytest.fixture(scope="module")
def red():
    """The lines that each cell prints in red, by its source."""
    cells = [SETUP, *ERRORS, OLD, UNREADABLE, CHECK, VALUE, OWN]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, allow_errors=True, timeout=300).execute()
    errors = {cell.source: [one for one in cell.outputs if one.output_type == "error"] for cell in notebook.cells}
    return {cell: "\n".join(line for one in found for line in one.traceback) for cell, found in errors.items()}


@pytest.mark.parametrize("cell", ERRORS)
def test_an_error_of_ours_is_its_message_alone(red, cell):
    assert not red[SETUP] and 1 <= len(red[cell].splitlines()) <= 3
    assert "what to do" in red[cell] or "raise" not in cell
    assert "Traceback" not in red[cell] and ".py" not in red[cell]


def test_an_answer_is_not_judged_by_its_last_cell_but_one(red):
    assert "SyntaxError" in red[UNREADABLE] and "Python cannot read the last cell of this answer" in red[CHECK]
    assert "Python cannot read" not in red[VALUE] and "your answer is 4" in red[OWN].replace("\n", " ")
