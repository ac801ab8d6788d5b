"""Predictions survive from notebook to notebook, and are scored by the factor they are off by."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labcourse.ledger import Ledger, ledger_file, scores
from labkit.errors import LabkitError


def test_predictions_of_several_notebooks_are_scored(tmp_path, capsys):
    path = tmp_path / "out" / "ledger.json"
    first, second = Ledger("04", path), Ledger("05", path)
    first.predict("streams", 2)
    first.predict("none", None)
    assert capsys.readouterr().out.startswith("Predict 'none': replace None by a number, and run this cell before")
    second.predict("graph", 2.0)
    second.predict("unmeasured", 1.5)
    first.measured("streams", 0.5)
    first.measured("none", 1.0)
    second.measured("graph", 4.0)
    table = scores(path).set_index("what")
    assert table["notebook"].tolist() == ["04", "04", "05", "05"]
    assert table.loc["streams", "off_by"] == 4 and table.loc["graph", "off_by"] == 2
    assert math.isnan(table.loc["none", "off_by"]) and math.isnan(table.loc["unmeasured", "off_by"])
    first.predict("streams", 1.0)
    assert first.table().loc["streams"].tolist()[:3] == ["1", "none", "none"], "it waits for a measurement"
    assert {file.name for file in path.parent.iterdir()} <= {"ledger.json", ".ledger.json.lock"}, "nothing half written"


def test_a_prediction_after_the_measured_value_was_shown_is_marked(tmp_path):
    ledger = Ledger("04", tmp_path / "ledger.json")
    for name, guesses in {"before": (2, 2), "changed": (2, 3), "none": (None, 3), "kept": (None, 3, 3)}.items():
        for guess in guesses:
            ledger.predict(name, guess)
            ledger.measured(name, 3)
    (tmp_path / "old.json").write_text('{"04": {"kept by an older version": {"guess": 2, "measured": null}}}')
    older = Ledger("04", tmp_path / "old.json")
    older.measured("kept by an older version", 3)
    older.predict("kept by an older version", 2)
    late = "after the measurement"
    assert older.table()["predicted"].tolist() == [""]
    assert ledger.table()["predicted"].to_dict() == {"before": "", "changed": late, "none": late, "kept": late}


def test_a_notebook_shows_the_whole_of_a_long_question(tmp_path):
    ledger, question = Ledger("10", tmp_path / "ledger.json"), "long" * 20
    ledger.predict(question, None)
    assert question in ledger.table()._repr_html_()


def test_zero_true_and_false_are_scored(tmp_path):
    ledger = Ledger("03", tmp_path / "ledger.json")
    for number, (guess, measured) in enumerate([(0, 0.0), (0, 2), (2, 0), (True, 1), (False, True)]):
        ledger.predict(f"number {number}", guess)
        ledger.measured(f"number {number}", measured)
    assert ledger.table()["off_by"].tolist() == ["1", "inf", "inf", "1", "inf"]


def test_what_cannot_be_kept_is_refused(tmp_path):
    ledger = Ledger("04", tmp_path / "ledger.json")
    for guess in ("fast", -1.0, math.nan, math.inf):
        with pytest.raises(LabkitError, match="streams.*at least 0"):
            ledger.predict("streams", guess)
    with pytest.raises(LabkitError, match="'streams'.* 04"):
        ledger.measured("streams", 1.0)
    (tmp_path / "ledger.json").write_text("{")
    with pytest.raises(LabkitError, match="ledger.json"):
        ledger.predict("streams", 1.0)


def test_two_notebooks_that_write_at_the_same_time_lose_nothing(tmp_path):
    def write(notebook):
        ledger = Ledger(notebook, tmp_path / "ledger.json")
        for i in range(20):
            ledger.predict(f"number {i}", i)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, ["04", "05", "06", "07"]))
    assert len(scores(tmp_path / "ledger.json")) == 80


def test_there_is_one_ledger_for_all_folders_of_a_course(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_LEDGER", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    clone = tmp_path / "clone"
    (clone / "labcourse").mkdir(parents=True)
    for folder in ("notebooks", "student", "assignments/release/04_two_streams", "../elsewhere/04", "../other/09"):
        (clone / folder).mkdir(parents=True)
    for folder in ("notebooks", "student", "assignments/release/04_two_streams"):
        monkeypatch.chdir(clone / folder)
        assert ledger_file() == clone / "out" / "ledger.json"
    graded = clone / "assignments" / "autograded" / "one" / "04_two_streams"
    graded.mkdir(parents=True)
    monkeypatch.chdir(graded)
    assert ledger_file() == graded / "ledger.json", "no student's predictions come before another's"
    monkeypatch.chdir(tmp_path / "elsewhere" / "04")
    Ledger("04").predict("streams", 2)
    monkeypatch.chdir(tmp_path / "other" / "09")
    assert scores()["what"].tolist() == ["streams"]
    assert ledger_file() == tmp_path / "home" / ".labkit" / "ledger.json"
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "mine.json"))
    assert Ledger("09").path == tmp_path / "mine.json"
