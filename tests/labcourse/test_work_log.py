"""The log of a project."""

import pytest

import labkit
from labcourse import WorkLog


def test_attempts_are_numbered_and_compared_with_the_first_that_ran():
    log = WorkLog()
    log.attempt("a kernel of our own", bar="compute", seconds=None, conclusion="does not compile")
    log.attempt("the entry as it is", bar="", seconds=30.0, conclusion="the baseline")
    log.attempt("three blocks", bar="compute", seconds=20.0, conclusion="kept", stopped="time", assistant="wrote it")
    log.attempt("fewer filters", bar="compute", seconds=24.0, conclusion="misses the goal")
    table = log.table()
    assert table.index.tolist() == [1, 2, 3, 4]
    assert table["times faster"].tolist()[1:] == [1.0, 1.5, 1.25] and table["times faster"].isna().tolist()[0]


def test_an_empty_log_has_a_table():
    assert WorkLog().table().empty


@pytest.mark.parametrize("seconds", [0, -1.0, "fast"])
def test_a_result_that_is_no_time_is_refused(seconds):
    with pytest.raises(labkit.LabkitError, match="is no time"):
        WorkLog().attempt("", bar="", seconds=seconds, conclusion="")
