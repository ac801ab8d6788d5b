"""A record is run again and written, and docs/speedrun.md has the ladder of the records as they are."""

import pytest
from made_up import heats

from benchmarks.authoring.ladder import PAGE, check_new, filled, write
from labcourse.speedrun import RaceJudge, ladder
from labkit import to_float

pytestmark = pytest.mark.slow


def test_the_page_has_the_ladder_as_it_is():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python -m benchmarks.authoring.ladder"


def test_a_record_is_written_with_its_text_and_its_pictures(tmp_path):
    text, judge = '"""The first line.\n\nMore."""\n', RaceJudge()
    judge.pictures[text] = to_float(judge.scenes.test_a[:8]).flip(1)
    write("first", text, heats([2.0, 1.0, 3.0]), None, [], judge, tmp_path)
    write("second", text, heats([2.0, 1.0, 3.0]), "first", heats([4.0] * 3), judge, tmp_path)
    first, second = ladder.records("cpu", tmp_path)
    assert (first["name"], first["rung"], first["seconds"], ladder.gain(first)) == ("first", 1, 2.0, None)
    assert (second["before"], second["difference"], ladder.gain(second)) == ("first", "The first line.", 2.0)
    assert second["heats"][1]["seconds"] == 1.0 and second["stamp"]["threads"] == 1
    assert ladder.source("second", tmp_path) == text and ladder.records("cuda", tmp_path) == []
    apples, oranges = ladder.pictures("first", tmp_path)
    assert (apples.float() - judge.scenes.test_a[:8].float()).abs().mean() < 4  # of 255: WebP loses a little
    assert (oranges.float() - judge.scenes.test_a[:8].flip(1).float()).abs().mean() < 4
    for taken in ("first", "../first"):
        with pytest.raises(SystemExit, match="a new name of letters, digits and underscores"):
            check_new(taken, tmp_path)
