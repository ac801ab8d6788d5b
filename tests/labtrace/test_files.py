"""A file is written whole or not at all."""

import os
import re

import pytest

from labtrace.errors import LabError, TraceError
from labtrace.files import atomic_write, check_folder


def test_the_file_appears_whole_in_folders_that_are_made(tmp_path):
    path = tmp_path / "new" / "table.json.gz"
    with atomic_write(path) as part:
        assert part.name.endswith(".json.gz") and part.parent == path.parent
        part.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole" and os.listdir(path.parent) == [path.name]


FAILURES = [OSError(28, "No space left on device"), RuntimeError("disk full\ndetails"), KeyboardInterrupt("disk full")]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("old", [None, "old"])
def test_a_failure_keeps_the_old_file_and_names_the_path_and_the_reason_but_for_an_interruption(tmp_path, failure, old):
    path, stays = tmp_path / "file.txt", isinstance(failure, KeyboardInterrupt)
    if old:
        path.write_text(old)
    with pytest.raises(KeyboardInterrupt if stays else TraceError) as raised:
        with atomic_write(path, TraceError) as part:
            part.write_text("half")
            raise failure
    assert raised.value is failure if stays else raised.value.__cause__ is failure
    assert stays or re.search("file.txt.*(No space left on device|disk full)", str(raised.value))
    assert os.listdir(tmp_path) == (["file.txt"] if old else [])
    assert old is None or path.read_text() == old


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="file/file.txt"), atomic_write(tmp_path / "file" / "file.txt"):
        raise AssertionError("nothing is written")
    with pytest.raises(LabError, match="file/folder"):
        check_folder(tmp_path / "file" / "folder")
