"""A survey measures what there is time for, loses nothing to what goes wrong, and goes on where it stopped."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import two_layers

from benchmarks.authoring import survey as surveys
from benchmarks.authoring.apart import Apart
from benchmarks.authoring.plan import TINY, Item, gpu_plan, rehearsal_plan
from benchmarks.authoring.survey import NO_TIME, survey
from labkit import LabkitError
from labkit.measure.tables import SURVEY_FORMAT, from_json
from labkit.stamp import stamp

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
PLAN = [Item("timing", 1, TINY, size) for size in (32, 64, 96)]
KEYS = [item.key for item in PLAN]
SMALL = TINY | {"generator": two_layers()}


def in_force(row):
    return tuple(row["stamp"][flag] for flag in ("cudnn_benchmark", "tf32_conv", "tf32_matmul"))


def flags():
    return in_force({"stamp": stamp()})


def read(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.fixture
def measure(monkeypatch):
    """Sets what a timing does, and lists the keys it did it for."""

    def use(function=lambda item, out: None):
        def row(item, device, out):
            done.append(item.key)
            yield {"number": 0}, ""
            function(item, out)
            yield {"number": 1}, "measured"

        monkeypatch.setitem(surveys.MEASURES, "timing", row)
        return done

    done = []
    return use


# ---- measured in earnest


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """The folder of a rehearsal on the CPU that was killed twice: nothing that it had found is lost."""
    folder, command = tmp_path_factory.mktemp("survey"), [sys.executable, "-m", "benchmarks.authoring.survey"]
    command += [f"--out={folder}", "--device=cpu", "--minutes=30"]
    found = seen = {"rows": {}, "unfinished": {}}
    for number in range(2):
        process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        while process.poll() is None and [seen[part] for part in found] == [*found.values()]:
            time.sleep(0.3 * (number + 1))
            seen = read(folder) if (folder / "results.json").exists() else found
        process.kill()
        process.wait()
        left, found = read(folder), {part: read(folder)[part] for part in found}
        assert seen["rows"].items() <= left["rows"].items()
        assert seen["unfinished"].keys() <= {*left["rows"], *left["unfinished"]}
    before = flags()
    survey(folder, minutes=30, device="cpu")  # enough on a busy machine, too
    assert flags() == before
    return folder


def test_a_rehearsal_makes_rows_of_every_kind_and_says_what_it_left_out(rehearsal):
    results = read(rehearsal)
    rows = list(results["rows"].values())
    assert {row["kind"] for row in rows} == surveys.MEASURES.keys() and results["unfinished"] == {}
    assert set(results["rows"]) | set(results["skipped"]) == {item.key for item in rehearsal_plan()}
    assert sorted(results["skipped"].values()) == [
        "does not suit this device: it computes nothing in TF32",
        "inactive: streams: there are no CUDA streams here",
    ]
    assert results["format"] == SURVEY_FORMAT
    assert results["stamp"]["device"] == stamp()["device"] and results["stamp"]["ran_on"] == "cpu"


def test_rows_hold_the_numbers(rehearsal):
    rows = read(rehearsal)["rows"]
    row = {key.rpartition("/")[2]: row for key, row in rows.items() if key.startswith("correctness")}["batched"]
    assert row["ok"] is True and row["seen"]["run losses"] <= 1e-6
    assert in_force(row) == (True, False, False)
    assert rows["device"]["matmul_flop_per_s"]["float32"] > 1e9 and rows["device"]["copy_bytes_per_s"] > 1e8
    of = {row["kind"]: row for row in rows.values()}
    assert of["right"]["ok"] and len(of["right"]["errors"]) == 4 + 2 + 2 * 2 + 2 * 3
    in_turn = [row for row in rows.values() if row["kind"] == "in_turn"]  # a kill may change their order
    turns = [[len(row[name]["ms"]) for name in ("plain, first", "old", "new", "plain, last")] for row in in_turn]
    assert sorted(turns) == [[3, 1, 1, 3], [3, 6, 6, 3]]
    assert max(found["gradients"] for name, found in of["replay"].items() if name.endswith(", new")) < 1e-3
    new, plain, _ = of["updates"]["losses"].values()
    assert new[1] == pytest.approx(plain[1], rel=1e-2) and plain[1]["G_A"] > 0
    streams = of["streams"]
    assert in_force(streams) == (False, True, False) and [len(each) for each in streams["seconds"].values()] == [6, 6]
    timings = [row for row in rows.values() if row["kind"] == "timing"]
    for row in timings:
        assert in_force(row) == (True, True, False)
        table = from_json(row["comparison"])
        assert all(len(seconds) == row["steps"] >= 6 for seconds in table.attrs["seconds"].values())
        assert table["images_per_s"].tolist() == pytest.approx((1 / table["median_s"]).tolist())
        assert table["peak_bytes"].isna().all()
        assert 0.5 < table.loc["baseline again", "times_faster"] < 2, "the baseline against itself"
        assert table.index[2:].tolist() == row["speedups"] and (table["loss_difference"] < 5e-2).all()


@pytest.mark.parametrize(
    ("factor", "after", "ok"),
    [(1.0, 0, True), (1 + 1e-5, 0, False), (float("nan"), 0, False), (1 + 1e-5, 51, False)],
)
def test_a_wrong_exact_speedup_is_found_even_if_it_goes_wrong_late(monkeypatch, factor, after, ok):
    """Late: as a graph would whose learning rate or draws are stale; the baseline follows a long run."""
    from labkit.variants.batched import Batched

    def losses(self, player, batch):
        self.calls = getattr(self, "calls", 0) + 1  # two a step
        found = super(Batched, self).losses(player, batch)
        return {name: loss * (factor if self.calls > 2 * after else 1) for name, loss in found.items()}

    monkeypatch.setattr(Batched, "losses", losses, raising=False)
    item = Item("correctness", 1, SMALL, 16, speedups=("batched",), steps=52)
    row, said = surveys.check_correctness(item, CPU, None)
    assert row["ok"] is ok and said.startswith("ok: " if ok else "NOT OK: ")


# ---- losing nothing


def test_a_survey_goes_on_from_earlier_results_and_repeats_nothing(tmp_path, measure, capsys):
    done = measure()
    for only in (f"{KEYS[0]},{KEYS[1]}", "", ""):  # how the keys begin
        survey(tmp_path, plan=PLAN, device="cpu", only=only)
    assert done == KEYS and list(read(tmp_path)["rows"]) == KEYS
    assert capsys.readouterr().out.count(": measured (") == 3


def test_it_learns_how_long_items_take_here(tmp_path, measure, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(surveys.time, "monotonic", lambda: now[0])

    def slow(item, out):
        now[0] += 25 * item.estimate_s

    done = measure(slow)
    survey(tmp_path, minutes=1e-6, plan=PLAN, device="cpu")
    assert done == [] and read(tmp_path)["skipped"] == dict.fromkeys(KEYS, NO_TIME)
    survey(tmp_path, minutes=1, plan=PLAN, device="cpu")
    assert done == KEYS[:2], "after two of 25 s there are 10 s left: enough for the estimate of 1 s, not for 25 s"
    assert read(tmp_path)["skipped"] == {KEYS[2]: NO_TIME}


def test_a_bug_costs_one_row_is_shown_and_tried_last_by_the_next_call(tmp_path, measure, capsys):
    def broken(item, out):
        if item == PLAN[0]:
            raise ValueError("the bug\nand its details")

    before = flags()
    done = measure(broken)
    survey(tmp_path, plan=PLAN[:2], device="cpu")
    assert read(tmp_path)["skipped"] == {KEYS[0]: "ValueError: the bug"} and flags() == before
    assert [row["number"] for row in read(tmp_path)["unfinished"][KEYS[0]]] == [0]
    shown = capsys.readouterr()
    assert f"{KEYS[0]}: skipped, ValueError: the bug (" in shown.out and "in broken" in shown.err
    survey(tmp_path, plan=PLAN, device="cpu")
    assert done == [KEYS[0], KEYS[1], KEYS[2], KEYS[0]]
    assert [row["number"] for row in read(tmp_path)["unfinished"][KEYS[0]]] == [0, 0], "of each try"


def test_a_kill_leaves_all_that_was_measured_before_it(tmp_path, measure):
    def killed(item, out):
        assert list(read(out)["rows"]) == KEYS[: len(done) - 1], "written after each item"
        if item == PLAN[1]:
            raise KeyboardInterrupt

    before = flags()
    done = measure(killed)
    with pytest.raises(KeyboardInterrupt):
        survey(tmp_path, plan=PLAN, device="cpu")
    assert flags() == before
    results = read(tmp_path)
    assert list(results["rows"]) == KEYS[:1] and results["skipped"] == {KEYS[1]: "did not finish", KEYS[2]: NO_TIME}
    measure()
    survey(tmp_path, plan=PLAN, device="cpu")
    assert done == [KEYS[0], KEYS[1], KEYS[2], KEYS[1]], "an item that killed one call stops no others in the next"


def fails(how):
    yield {"number": 1}, ""
    how()


@pytest.mark.parametrize(
    ("how", "why"), [(partial(os._exit, 7), "exit code 7"), (partial(time.sleep, 600), "after 2 s, its limit")]
)
def test_a_crash_or_a_hang_costs_one_row_and_not_what_it_has_found(how, why):
    apart = Apart(fails)
    first, (row, said) = apart(how, seconds=2)
    apart.close()
    assert first == ({"number": 1}, "") and row is None and why in said


# ---- what cannot be used


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 1, "stamp": {}, "rows": {}, "skipped": {}}', "in format 2"),
        (
            '{"format": 2, "stamp": {"device": "Tesla T4", "ran_on": "cuda"}, "rows": {}, "skipped": {}}',
            "of another device",
        ),
    ],
)
def test_earlier_results_that_do_not_fit_are_refused(tmp_path, measure, content, message):
    done = measure()
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(LabkitError, match=message):
        survey(tmp_path, plan=PLAN, device="cpu")
    assert done == [] and (tmp_path / "results.json").read_text() == content


# ---- what is worth measuring


def test_every_speedup_of_the_plan_is_held_to_the_baseline():
    correct = {name for item in gpu_plan() if item.kind == "correctness" for name in item.speedups}
    assert correct == {name for item in gpu_plan() for name in item.speedups}


def test_a_first_call_of_eight_minutes_has_all_of_nhwc_but_the_compiler():
    *first, compiler = gpu_plan()[:13]
    assert [item.kind for item in first[:8]] == ["device", "right", "in_turn", "in_turn", *["trace"] * 4]
    assert sum(item.estimate_s for item in first) < 480 and "compile" in compiler.speedups
