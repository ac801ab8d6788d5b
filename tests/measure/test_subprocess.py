"""Work in another process: its answer and its errors arrive here, and its death is an error, too."""

import os

import pytest

from labkit import LabkitError
from labkit.errors import DataError
from labkit.measure import run_in_subprocess


def divided(number, by):
    return os.getpid(), divmod(number, by)


@pytest.mark.slow
def test_the_answer_comes_from_another_process():
    process, answer = run_in_subprocess(divided, 7, 2)
    assert process != os.getpid() and answer == (3, 1)


def refuse(name):
    raise DataError(f"{name} cannot be used")


@pytest.mark.slow
def test_what_goes_wrong_there_is_raised_here():
    with pytest.raises(DataError, match="^this cannot be used$"):
        run_in_subprocess(refuse, "this")


def test_a_process_that_dies_is_an_error():
    with pytest.raises(LabkitError, match="_exit: its process ended early"):
        run_in_subprocess(os._exit, 7)
