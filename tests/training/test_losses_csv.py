"""losses.csv has one row for each step, whatever happens to the run."""

import pytest
from killing import KilledError, killed_at
from tiny import rows_of

from labkit.training import callbacks, checkpoints


def rows(folder):
    return rows_of(folder / callbacks.LOSSES)


def test_each_step_has_a_row_of_exact_numbers(train, tmp_path):
    run = train(5, tmp_path, report_every=2)
    table = rows(tmp_path)
    assert list(table[0]) == ["step", *run.losses]
    assert [int(row["step"]) for row in table] == [1, 2, 3, 4, 5]
    for name, values in run.losses.items():
        assert [float(row[name]) for row in table] == values


@pytest.mark.slow
def test_after_a_kill_no_row_is_missing_and_none_is_there_twice(train, tmp_path):
    train(7, tmp_path / "whole")
    train(2, tmp_path / "killed")
    with pytest.raises(KilledError):
        train(7, tmp_path / "killed", killed_at(5), report_every=1)
    assert len(rows(tmp_path / "killed")) == 5 and checkpoints.load(tmp_path / "killed")["done"] == 2
    with open(tmp_path / "killed" / callbacks.LOSSES, "a") as file:
        file.write("6,0.001,0.0")  # half a row, as a power cut could leave it
    train(7, tmp_path / "killed")
    assert (tmp_path / "killed" / callbacks.LOSSES).read_text() == (tmp_path / "whole" / callbacks.LOSSES).read_text()


def test_a_file_that_someone_deleted_is_whole_again(train, tmp_path):
    def delete(run):
        if run.done == 2:
            (tmp_path / callbacks.LOSSES).unlink()

    train(4, tmp_path, delete, report_every=1)
    assert len(rows(tmp_path)) == 4
    (tmp_path / callbacks.LOSSES).unlink()
    train(4, tmp_path)
    assert len(rows(tmp_path)) == 4
