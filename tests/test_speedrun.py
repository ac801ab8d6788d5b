"""The speedrun's judge: honest entries get their scores, and every way to cheat is named with the rule it breaks."""

import random
import statistics
import string
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit import show, to_float
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL
from labkit.speedrun import RULES, BrokenRule, Heat, Judge, ladder, processes, race, rules, verdict
from labkit.speedrun.calibration import PORTION, Calibrator, calibrator
from tools.ladder import PAGE, filled

HONEST = Path(__file__).with_name("speedrun_entry.py").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the judge needs Linux or macOS")

MAKE = "    model = Small().to(device)\n"
USE = "        verdict = self.model.D(fake)\n"
NUMBERS = random.Random(0)
# A map of colours, 3 -> 8 -> 3, found with pairs: fg about 8, bg below 1.
COLOURS = """
0.19 0.62 -1.62 -0.19 -0.17 0.25 0 0 0 0.15 -0.17 -0.11 -0.33 -0.15 -0.02 -0.13 0.07 0.19 0.59 -0.84 -0.24 0.01 0 0
-0.92 -0.15 0.56 -0.54 -0.57 -0.28 -0.42 0.41 2.28 0.01 -0.18 -0.33 -0.05 0.03 0.69 -0.01 -1.2 -0.03 0.13 -0.33 -0.08
-0.19 1.26 0.16 -0.98 0 0.28 0.35 0.19 -0.05 -0.26 -0.02 0.1 -0.14 -0.15
""".split()


def listed(numbers):
    """A line of an entry for each ten of these numbers."""
    tens = (", ".join(map(str, numbers[first : first + 10])) for first in range(0, len(numbers), 10))
    return "    numbers = [\n" + "".join(f"        {ten},\n" for ten in tens) + "    ]\n"


# By name: the rule that it breaks, and what replaces what in the honest entry.
CHEATS = {
    "weights in a text": ("random", {MAKE: f"{MAKE}    weights = {'ab' * 40!r}\n"}),
    "weights in numbers": ("random", {MAKE: MAKE + listed(range(101))}),
    "weights in a long number": ("random", {MAKE: f"{MAKE}    weights = {NUMBERS.getrandbits(300)}\n"}),
    "weights in comments": (
        "random",
        {USE: "".join(f"# {''.join(NUMBERS.choices(string.printable[:90], k=118))}\n" for _ in range(10))},
    ),
    "begins with the answer": (
        "random",
        {
            "import Tensor, nn": "import Tensor, nn, tensor",
            "8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 3, 3, 1, 1)": "8, 1), nn.ReLU(), nn.Conv2d(8, 3, 1)",
            MAKE: MAKE + listed(COLOURS) + "    nn.utils.vector_to_parameters(tensor(numbers), model.G.parameters())\n",
        },
    ),
    "weights on the disk": ("data", {MAKE: f"{MAKE}    torch.load('/etc/hostname')\n"}),
    "weights for the next seed": ("data", {MAKE: f"{MAKE}    torch.save(model.state_dict(), '/var/tmp/weights.pt')\n"}),
    "a file for the next seed": (
        "data",
        {
            "\nfrom torch": "\nfrom torch.utils.file_baton import FileBaton\nfrom torch",
            MAKE: f"{MAKE}    FileBaton('/var/tmp/seen').try_acquire()\n",
        },
    ),
    "weights from a server": ("data", {MAKE: f"{MAKE}    torch.hub.download_url_to_file('http://127.0.0.1:9', 'w')\n"}),
    "pairs": ("data", {"\nfrom torch": "\nfrom labkit.data.fruit import scenes\nfrom torch"}),
    "test scenes": (
        "data",
        {MAKE: f"{MAKE}    labkit.fruit().test_b\n", "\nfrom torch": "\nimport labkit\nfrom torch"},
    ),
    "labkit's trained models": ("data", {"\nfrom torch": "\nfrom labkit import deviation_models\nfrom torch"}),
    "another process": (
        "alone",
        {MAKE: f"{MAKE}    next(iter(torch.utils.data.DataLoader([1], num_workers=1)))\n"},
    ),
    "another clock": ("judge", {MAKE: f"    time.process_time = lambda: 0.0\n{MAKE}"}),
    "another PyTorch": ("judge", {MAKE: f"    F.mse_loss = lambda *pictures: 0.0\n{MAKE}"}),
    "another judge": ("judge", {"\nfrom torch": "\nfrom labkit.speedrun import judge\nfrom torch"}),
    "a result in print": ("judge", {MAKE: f"    print('record: 100 times as fast')\n    quit()\n{MAKE}"}),
    "a way to the system": ("judge", {MAKE: f"    getattr(torch, 'o' + 's')\n{MAKE}"}),
    "a private way to the system": ("judge", {MAKE: f"    torch._utils.sys.exit()\n{MAKE}"}),
    "numbers beside the weights": (
        "weights",
        {
            "        self.layers = nn.Seq": "        self.seen = torch.zeros(3, 64)\n        self.layers = nn.Seq",
            "picture + self": "picture + self.seen.mean() + self",
        },
    ),
    "one size only": ("labkit", {"picture + self": "picture + picture.new_zeros(64, 64) + self"}),
    "without an end": ("limits", {USE: f"{USE}        while True:\n            self.model.D(fake)\n"}),
}


def changed(replacements):
    """The honest entry, changed."""
    text = HONEST
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new, 1)
    return text.replace("\nfrom torch import", "\nimport torch\nfrom torch import", 1) if "torch." in text else text


@pytest.fixture(scope="module")
def judge():
    return Judge(limit=20)


@pytest.fixture(scope="module")
def clock():
    with calibrator() as clock:
        yield clock


def test_an_honest_entry_gets_its_time_and_its_scores(judge, clock):
    before = len(clock.portions)
    heat = judge.heat(HONEST, 1, clock)
    assert [look["share"] for look in heat.curve] == [0, 0.5, 1]
    assert 0.5 < heat.curve[0]["cpu_seconds"] < heat.curve[-1]["cpu_seconds"] <= heat.cpu_seconds
    assert heat.curve[0]["fg"] != heat.curve[1]["fg"] and not heat.reached  # it has learned, though not enough
    portion = statistics.median(clock.portions[before:])
    assert heat.seconds == pytest.approx(heat.cpu_seconds * PORTION / portion, rel=1e-9) and heat.cpu_seconds > 0.5
    assert judge.pictures[HONEST].shape == (8, 3, 64, 64)


def test_on_the_gpus_board_wall_time_counts_and_nothing_is_stopped(clock, monkeypatch):
    """A stopped process's GPU would work on. Here the training itself runs on the processor, under the GPU's rules."""
    run = processes.run

    def on_processor(module, arguments, *others):
        return run(module, ["cpu" if argument == "cuda" else argument for argument in arguments], *others)

    monkeypatch.setattr(processes, "run", on_processor)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/where/cuda/is")
    before = len(clock.portions)
    heat = Judge("cuda", limit=20).heat(HONEST, 1, clock)
    assert heat.seconds == heat.wall_seconds > 0.5 and len(clock.portions) == before
    assert processes.environment()["LD_LIBRARY_PATH"] == "/where/cuda/is", "without it some machines find no driver"


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_named_with_its_rule(judge, clock, name):
    rule, replacements = CHEATS[name]
    if name == "without an end":
        judge = Judge(limit=4)
    with pytest.raises(BrokenRule) as broken:
        judge.heat(changed(replacements), 1, clock, "rgb")
    assert broken.value.rule == rule and RULES[rule] in str(broken.value)


def test_an_answer_brought_along_is_of_no_use_where_channels_are_exchanged(judge, clock):
    begins = CHEATS["begins with the answer"][1]
    wait = {
        MAKE: MAKE + listed(COLOURS) + "    answer = tensor(numbers)\n",
        "    return Entry(model, Players(model), ": "    def step(*pictures):\n"
        "        nn.utils.vector_to_parameters(answer, model.G.parameters())\n\n    return Entry(model, step, ",
    }
    text = changed({**begins, **wait})
    assert judge.heat(text, 1, clock, "rgb").reached
    assert not judge.heat(text, 1, clock, "gbr").reached
    assert len({judge.channels(seed) for seed in range(100)}) == 6


def test_an_entry_is_short():
    with pytest.raises(BrokenRule, match="81 lines"):
        rules.check("\n".join(["x = 1"] * 81))
    with pytest.raises(BrokenRule, match="line 2 has 121 characters"):
        rules.check("\n" + "#" * 121)


def test_an_error_of_an_entry_is_shown(judge, clock):
    with pytest.raises(LabkitError, match="ZeroDivisionError"):
        judge.heat(changed({MAKE: MAKE + "    1 / 0\n"}), 1, clock)


def heats(seconds, fg=8.0):
    return [
        Heat(seed, "rgb", one, one, one, [dict(share=1.0, cpu_seconds=one, fg=fg, bg=2.0, changed=0.0)])
        for seed, one in enumerate(seconds)
    ]


RECORD = [10.0, 10.4, 10.2, 10.1, 10.3]  # it differs from itself by 0.4


@pytest.mark.parametrize(
    ("mine", "record", "made"),
    [
        (heats([9.0, 9.7, 9.7, 9.7, 12.0]), heats(RECORD), True),
        (heats([9.85] * 5), heats(RECORD), False),  # faster, but by less than that
        (heats([9.0] * 4) + heats([9.0], fg=9.1), heats(RECORD), True),  # four of five are enough
        (heats([9.0] * 3) + heats([9.0] * 2, fg=9.1), heats(RECORD), False),
        (heats([99.0] * 5), None, True),
        (heats([99.0] * 5, fg=9.1), None, False),
    ],
)
def test_a_record_is_faster_by_more_than_noise_and_as_good(mine, record, made):
    found = verdict(mine, record)
    assert found.record == made and found.reason


def test_calibrated_seconds_do_not_depend_on_the_speed_of_the_machine():
    fast, slow = Calibrator(None), Calibrator(None)
    fast.portions, slow.portions = [9.0, PORTION, PORTION], [9.0, 2 * PORTION, 2 * PORTION]
    assert fast.calibrated(3.0, since=1) == pytest.approx(3.0) == slow.calibrated(6.0, since=1)


def test_a_record_is_written_with_its_text_and_its_pictures(judge, tmp_path):
    text = '"""The first line.\n\nMore."""\n'
    judge.pictures[text] = to_float(judge.scenes.test_a[:8]).flip(1)
    for name, before in (("first", None), ("second", "first")):
        ladder.submit(name, text, heats([2.0, 1.0, 3.0]), before, heats([4.0] * 3) if before else [], judge, tmp_path)
    first, second = ladder.records("cpu", tmp_path)
    assert (first["name"], first["rung"], first["seconds"]) == ("first", 1, 2.0)
    assert (second["before"], second["difference"]) == ("first", "The first line.")
    assert second["heats"][1]["seconds"] == 1.0 and second["stamp"]["threads"] == 1
    assert ladder.source("second", tmp_path) == text and ladder.records("cuda", tmp_path) == []
    apples, oranges = ladder.pictures("first", tmp_path)
    assert (apples.float() - judge.scenes.test_a[:8].float()).abs().mean() < 4  # of 255: WebP loses a little
    assert (oranges.float() - judge.scenes.test_a[:8].flip(1).float()).abs().mean() < 4
    with pytest.raises(LabkitError, match="record of this name"):
        ladder.submit("first", text, heats([2.0]), None, [], judge, tmp_path)
    with pytest.raises(LabkitError, match="letters, digits and underscores"):
        ladder.check_name("../first", tmp_path)
    with pytest.raises(LabkitError, match="in a clone"):
        ladder.check_name("first", tmp_path / "gone")
    with pytest.raises(LabkitError, match="no entry 'third'.*first, second"):
        ladder.source("third", tmp_path)
    drawn = show.ladder([first, second], tmp_path)
    assert list(drawn.data[0].y) == [2.0, 2.0] and len(drawn.layout.images) == 2
    assert "2.00 times as fast" in drawn.layout.meta["table"]
    lines = show.heats({"mine": heats([2.0, 3.0])}).data
    assert [(line.x[0], line.y[0]) for line in lines] == [(2.0, 8.0), (2.0, 2.0), (3.0, 8.0), (3.0, 2.0)]


def test_the_ladder_holds_records_each_faster_than_the_one_before_beyond_noise():
    records = ladder.records()
    assert [record["rung"] for record in records] == list(range(1, len(records) + 1)) and len(records) >= 8
    for before, record in zip(records, records[1:], strict=False):
        assert record["before"] == before["name"]
        mine, theirs = ([Heat(**heat) for heat in record[of]] for of in ("heats", "heats_before"))
        assert verdict(mine, theirs).record and verdict(theirs, None).record, record["name"]
    for record in records:
        rules.check(ladder.source(record["name"]))


def test_the_page_has_the_ladder_as_it_is():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python -m tools.ladder"


def test_the_last_records_run_again_in_their_order(judge):
    names = [record["name"] for record in ladder.records()[-3:]]
    again = race(judge, {name: ladder.source(name) for name in names}, seeds=[1])
    seconds = [again[name][0].seconds for name in names]
    assert seconds == sorted(seconds, reverse=True)
    assert all(again[name][0].curve[-1]["fg"] < 1.2 * GOAL["fg"] for name in names)  # a single seed may just miss


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_training_ends_with_its_judge(tmp_path):
    endless = tmp_path / "endless.py"
    endless.write_text(changed(CHEATS["without an end"][1]), encoding="utf-8")
    judging = subprocess.Popen([sys.executable, "-m", "labkit", "speedrun", str(endless)], stdout=subprocess.DEVNULL)
    judge = psutil.Process(judging.pid)
    runner = wait_for(lambda: [one for one in judge.children() if "labkit.speedrun.runner" in one.cmdline()])[0]
    judging.kill()
    judging.wait()
    assert wait_for(lambda: not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE)


def wait_for(happens):
    """What `happens` returns as soon as it is true; it has to be within a minute."""
    for _ in range(600):
        if found := happens():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")
