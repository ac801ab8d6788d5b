"""A visit to a GPU measures what matters most first, loses nothing to what goes wrong, and continues."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import two_layers

from benchmarks.authoring import items, visit
from labcourse.shipped import shipped_as
from labkit.errors import LabkitError
from labkit.measure.tables import SURVEY_FORMAT, write_results

ROOT = Path(__file__).parents[2]
# An item's process, without PyTorch: it writes a row, and does what its item's name says.
PROCESS = """
import json, os, pathlib, sys, time
file, name = pathlib.Path(sys.argv[1]), sys.stdin.readline().strip()
if name and not name.isdecimal():
    results = json.loads(file.read_text())
    results["rows"].setdefault(name, {"tries": 0, "fails": {}, "begun": "a stack"})["tries"] += 1
    if name == "fails":
        results["skipped"][name] = "ValueError: wrong"
    elif name not in ("crashes", "hangs"):
        del results["skipped"][name]
    file.write_text(json.dumps(results))
    if name == "crashes":
        os._exit(7)
    time.sleep(60 if name == "hangs" else 0)
"""


def read(folder):
    return json.loads((folder / visit.RESULTS_FILE).read_text())


@pytest.fixture
def processes(monkeypatch):
    """Sets the items of a visit by name; lists the names that processes were given."""
    given, begin = [], visit.begin

    def started(out, device):
        command = [sys.executable, "-S", "-c", PROCESS, str(out / visit.RESULTS_FILE)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def noted(process, name):
        given.append(name)
        return begin(process, name)

    monkeypatch.setattr(visit, "start", started)
    monkeypatch.setattr(visit, "begin", noted)
    monkeypatch.setattr(visit, "START_S", 1.0)
    monkeypatch.setattr(visit, "LEAST_S", 0)

    def use(*names):
        monkeypatch.setattr(visit, "ITEMS", {name: visit.Item(None, 0.0) for name in names})
        return given

    return use


# ---- what is measured


def test_the_most_important_comes_first_and_all_of_it_fits_into_one_call():
    assert sum(item.estimate_s for item in visit.ITEMS.values()) < 480
    large, small = (visit.ITEMS[name].measure.args for name in ("batch 16", "batch 1"))
    assert [*large[1]] == ["plain", "old", "new", "compile"] and large[3] == 1
    assert [*small[1]] == ["plain", "old", "new", "new, streams"] and small[3] == 4
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    assert all(f"\n| {name}" in page for name in visit.ITEMS), "what is predicted stands there before it is measured"
    assert [*large[2]] == ["new"] and [*small[2]] == ["new", "new, launched", "old, launched"]  # the launched last


@pytest.fixture
def place(tmp_path, monkeypatch):
    size = items.SIZES["cpu"]
    monkeypatch.setattr(size, "settings", items.TINY | {"generator": two_layers()})
    monkeypatch.setattr(size, "rounds", (10, 20))
    monkeypatch.setattr(items, "record", lambda step, batch, path, steps, shapes: path.write_text(f"shapes: {shapes}"))
    return items.Place({}, torch.device("cpu"), tmp_path)


def test_stacks_are_timed_in_turn_and_one_that_fails_costs_itself_alone(place):
    stacks = {"plain": (), "old": ("batched",), "new": ("no such",), "compile": ("fused_adam",)}
    whole = partial(items.in_turn, "batch 16", stacks, {"new": ("no such",), "old": ("batched",)}, 1, place)
    for _ in zip(range(4), whole(), strict=False):
        pass  # killed when "plain" and "old" are made, and were timed
    row = place.rows["batch 16"]
    assert [[*one] for one in row["rounds"][:5]] == [["plain"]] * 4 + [["plain", "old"]]
    place.rows["batch 16"] = row = json.loads(json.dumps(row))  # as a call finds it that continues
    earlier = row["rounds"][:8]
    [*_, text] = whole()
    assert row["rounds"][:8] == earlier and len(row["rounds"]) == 10 and len(row["rounds"][-1]) == 3
    assert "no such" in row["fails"]["new"] and not row["begun"]
    middle, low, high = row["times_faster"]["old than plain"]
    assert low <= middle <= high and row["made"]["old"]["losses"]["G_A"] > 0
    recorded = place.rows["recording of batch 16, old"]
    assert recorded["speedups"] == ("batched",) and recorded["file"] in text and recorded["batch_size"] == 2
    as_measured = {**recorded, "settings": items.FULL, "size": 256}
    assert shipped_as(as_measured) == "resnet_9blocks_b2_batched.json.gz"
    assert (place.out / recorded["file"]).read_text() == "shapes: True"  # there is no graph
    assert "recording of batch 16, new" not in place.rows
    assert [*whole()] == [], "all is there"


def test_a_gpu_that_has_failed_for_good_ends_the_process_and_fails_no_other_stack(place, monkeypatch):
    def dead():
        raise RuntimeError("an illegal memory access")

    stacks = {"plain": (), "new": ("no such",), "compile": ("batched",)}
    whole = items.in_turn("batch 16", stacks, {}, 1, place)
    assert [next(whole), next(whole)][0] == "plain: begins"
    monkeypatch.setattr(items, "synchronise", dead)
    with pytest.raises(RuntimeError, match="illegal"):
        list(whole)
    assert [*place.rows["batch 16"]["fails"]] == ["new"]


def test_the_plain_step_of_batch_1_is_in_every_fourth_round(place):
    for _ in items.in_turn("batch 1", {"plain": (), "new": ("batched",)}, {}, 4, place):
        pass
    assert [turn for turn, one in enumerate(place.rows["batch 1"]["rounds"][4:]) if "plain" in one] == [0, 4, 8, 12]


def test_while_right_runs_others_compile(tmp_path, processes):
    given = processes("device", "right", "batch 16")
    visit.visit(tmp_path, "cuda", 30)
    assert given == ["device", *map(str, range(len(visit.AHEAD))), "right", "batch 16"]
    assert {stack for stack, large in visit.AHEAD if large} == {items.COMPILED, items.NEW, items.NEW_FLOAT32}


# ---- losing nothing


def test_a_failure_costs_its_item_alone_and_is_tried_again_last(tmp_path, processes):
    given = processes("one", "fails", "crashes", "hangs", "two")
    visit.visit(tmp_path, "cpu", 30)
    assert given == ["one", "fails", "crashes", "hangs", "two", "fails", "crashes", "hangs"]
    results = read(tmp_path)
    assert results["format"] == SURVEY_FORMAT and [*results["rows"]] == ["one", "fails", "crashes", "hangs", "two"]
    skipped = results["skipped"]
    assert skipped["fails"] == "ValueError: wrong" and [*skipped] == ["fails", "crashes", "hangs"]
    assert "exit code 7" in skipped["crashes"] and "exit code -9" in skipped["hangs"]
    assert results["rows"]["hangs"]["fails"] == {"a stack": skipped["hangs"]}, "the next try leaves it out"


def test_the_same_call_continues_with_what_is_missing(tmp_path, processes, monkeypatch):
    given = processes("fails", "hangs", "two")
    with monkeypatch.context() as patient:
        patient.setattr(visit, "START_S", 100.0)
        visit.visit(tmp_path, "cpu", 3)  # in "hangs" the time is up
    assert given == ["fails", "hangs"]
    assert read(tmp_path)["skipped"] == {"fails": "ValueError: wrong", "hangs": visit.UNFINISHED, "two": visit.UNTRIED}
    assert read(tmp_path)["rows"]["hangs"]["fails"] == {}, "it need not have been the stack's fault"
    given.clear()
    visit.visit(tmp_path, "cpu", 30)
    assert given == ["hangs", "two", "fails", "hangs", "fails"]
    with pytest.raises(LabkitError, match="measured on cpu, not cuda"):
        visit.visit(tmp_path, "cuda")


def test_an_item_s_error_is_its_result_and_what_it_has_found_stays(tmp_path, monkeypatch):
    def broken(place):
        place.row("broken", "some kind")["number"] = 1
        yield "a number"
        raise ValueError("the bug\nand its details")

    write_results({"format": SURVEY_FORMAT, "rows": {}, "skipped": {}}, tmp_path / visit.RESULTS_FILE)
    monkeypatch.setattr(visit, "ITEMS", {"broken": visit.Item(broken, 1.0)})
    visit.measure("broken", tmp_path, "cpu")
    assert read(tmp_path)["skipped"] == {"broken": "ValueError: the bug"}
    assert read(tmp_path)["rows"]["broken"]["number"] == 1 and read(tmp_path)["stamp"]["torch"] == torch.__version__
