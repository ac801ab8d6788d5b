"""The speedrun's judge: an entry gets its time and its scores, or is told what is wrong with it."""

import random
import subprocess
import sys
import time

import psutil
import pytest
from made_up import heats

import labcourse.cli
from labcourse.speedrun import RULES, BrokenRule, Heat, RaceJudge, ladder, race, race_judge, verdict
from labcourse.speedrun.yardstick import PORTION
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL

SHORT = ladder.source("cyclegan").replace("FRUIT.steps", "2, pictures=2")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the judge needs Linux or macOS")


@pytest.fixture(scope="module")
def judging():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race_judge, "PORTIONS_EACH_TIME", 1)  # of the yardstick
        yield RaceJudge(limit=60)


@pytest.mark.slow
def test_an_entry_gets_its_time_and_its_scores(judging, monkeypatch):
    monkeypatch.setattr(judging, "yardstick", lambda: 2 * PORTION)  # a processor at half the speed
    found = judging.heat(SHORT, 1)
    assert [look["share"] for look in found.curve] == [0, 0.5, 1]
    assert 0.5 < found.curve[0]["cpu_seconds"] < found.curve[-1]["cpu_seconds"] == found.cpu_seconds
    assert found.curve[0]["fg"] != found.curve[1]["fg"] and not found.reached  # it has learned, though not enough
    assert found.seconds == pytest.approx(found.cpu_seconds / 2) and found.wall_seconds > 0.5
    assert judging.pictures[SHORT].shape == (8, 3, 64, 64)


def test_on_the_gpus_board_wall_time_counts(monkeypatch):
    found = {"cpu_seconds": 1.0, "wall_seconds": 2.0, "curve": [], "pictures": None}
    monkeypatch.setattr(race_judge, "_run", lambda source, task: found)
    heat = RaceJudge("cuda").heat(SHORT, 1)
    assert (heat.cpu_seconds, heat.wall_seconds, heat.seconds) == (1.0, 2.0, 2.0)


def test_each_of_six_trainings_has_another_order_of_colours(judging):
    assert len({judging.orders[seed] for seed in (7, 3, 99, 12, 5, 4)}) == 6 and judging.orders[7] == judging.orders[7]


LONG = f'weights = "{"".join(random.Random(0).choices("0123456789abcdef", k=4000))}"'
# A change of the entry's text, and what the judge says.
ERRORS = [
    (lambda text: LONG + text, RULES["short"]),
    (lambda text: text + "while True:\n    pass\n", RULES["limits"]),
    (lambda text: text.replace("2, pictures", "1 / 0, pictures"), "ZeroDivisionError"),
    (lambda text: text.replace("def entry(", "def another("), "Define a function entry"),
    (lambda text: text + "print('100 times as fast')\nquit()\n", "without a result:\n100 times as fast"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), ERRORS)
def test_an_error_of_an_entry_is_shown(judging, monkeypatch, change, message):
    monkeypatch.setattr(judging, "limit", 6 if message == RULES["limits"] else 60)
    with pytest.raises(BrokenRule if message in RULES.values() else LabkitError, match=message):
        judging.heat(change(SHORT), 1)


RECORD = [10.0, 10.4, 10.2, 10.1, 10.3]  # it differs from itself by 0.4

VERDICTS = [
    (heats([9.0, 9.7, 9.7, 9.7, 12.0]), heats(RECORD), True),
    (heats([9.85] * 5), heats(RECORD), False),  # faster, but by less than that
    (heats([9.0] * 4) + heats([9.0], fg=9.1), heats(RECORD), True),  # four of five are enough
    (heats([9.0] * 3) + heats([9.0] * 2, fg=9.1), heats(RECORD), False),
    (heats([99.0] * 5), None, True),
    (heats([99.0] * 5, fg=9.1), None, False),
]


@pytest.mark.parametrize(("mine", "record", "made"), VERDICTS)
def test_a_record_is_faster_by_more_than_noise_and_as_good(mine, record, made):
    is_record, reason = verdict(mine, record)
    assert is_record == made and reason


def test_the_ladder_and_the_heats_are_drawn():
    records = ladder.records()
    apples, oranges = ladder.pictures(records[0]["name"])
    assert apples.shape == oranges.shape == (8, 3, 64, 64)
    drawn = labcourse.ladder_figure(records)
    assert list(drawn.data[0].y) == [record["seconds"] for record in records]
    assert len(drawn.layout.images) == len(records) and "cyclegan 199" in drawn.layout.meta["text"]
    lines = labcourse.heats_figure({"mine": heats([2.0, 3.0])}).data
    assert [(line.x[0], line.y[0]) for line in lines] == [(2.0, 8.0), (3.0, 8.0), (2.0, 2.0), (3.0, 2.0)]


def test_the_ladder_holds_records_each_faster_than_the_one_before_beyond_noise():
    records = ladder.records()
    assert [record["rung"] for record in records] == list(range(1, len(records) + 1)) and len(records) >= 8
    for before, record in zip(records, records[1:], strict=False):
        assert record["before"] == before["name"]
        mine, theirs = ([Heat(**heat) for heat in record[of]] for of in ("heats", "heats_before"))
        assert verdict(mine, theirs)[0] and verdict(theirs, None)[0], record["name"]


@pytest.mark.slow
def test_a_record_runs_again(judging):
    (heat,) = race(judging, {"wider": ladder.source("wider")}, seeds=[1])["wider"]
    assert heat.curve[-1]["fg"] < 1.2 * GOAL["fg"]  # a single seed may just miss


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_an_entry_that_is_not_there_is_named_as_it_was_typed(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["labcourse", "speedrun", "mine.py"])
    with pytest.raises(SystemExit):
        labcourse.cli.main()
    reason = "there is no such file or folder. Name the Python file of your entry."
    assert capsys.readouterr().err == f"labcourse: mine.py: {reason}\n"


@pytest.mark.slow
def test_a_training_ends_with_its_judge(tmp_path):
    endless = tmp_path / "endless.py"
    endless.write_text("while True:\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "labcourse", "speedrun", str(endless), "--against", "none"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    judge = psutil.Process(process.pid)
    while not (trainings := [one for one in judge.children() if one.cpu_times().user > 1]):
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert not psutil.wait_procs(trainings, timeout=60)[1]
