"""Recordings whose fault is known: the verdict names it, and does not where it is not."""

import re
from pathlib import Path

import pytest

import labtrace
from benchmarks.authoring.planted import END, PAGE, START, judge, page_rows
from labtrace.errors import LabError
from labtrace.planted import FAULTS, write


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAULTS)
def test_the_verdict_names_the_fault_and_its_gain_and_does_not_on_the_neighbour(name, seed, tmp_path):
    planted = write(name, seed, tmp_path)
    found = judge(planted)
    assert not found["wrong"], f"{planted.fault.words}, {planted.true_gain:.2f}x: {found['wrong']}: {found['said']}"


def files(path):
    return [path] if path.is_file() else sorted(path.iterdir())


@pytest.mark.parametrize("name", ["launches", "memory", "to_gpu", "prefetched", "two_files"])
def test_the_neighbour_is_a_recording_without_any_finding(name, tmp_path):
    planted = write(name.replace("two_files", "slow_rank"), 0, tmp_path)
    assert labtrace.Trace(planted.neighbour).audit().empty
    assert {file.name for file in files(planted.path)} <= {"recording.json.gz", *(f"rank{n}.json.gz" for n in range(4))}


def test_a_seed_is_a_recording_to_the_byte_and_says_that_it_is_simulated(tmp_path):
    paths = [write("slow_rank", seed, tmp_path / folder).path for seed, folder in ((7, "a"), (7, "b"), (8, "c"))]
    first, again, other = ([*map(Path.read_bytes, files(path))] for path in paths)
    assert first == again != other
    trace = labtrace.Trace(paths[0])
    assert trace.stamp["SIMULATED"] and trace.temporal().columns.name == "SIMULATED" and len(trace.ranks) == 4


def test_an_unknown_fault_is_refused(tmp_path):
    with pytest.raises(LabError, match="did you mean 'loader'"):
        write("loade", 0, tmp_path)


def test_the_page_has_each_kind_of_fault_with_20_recordings_of_each():
    recordings = [{"cause": fault.cause, "wrong": "", "of_gain": 1.0} for fault in FAULTS.values() for _ in range(20)]
    page = PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]
    assert "1.00 (1.00 to 1.00)" in page_rows(recordings).splitlines()[2]
    kinds = [re.findall(r"(?m)^\| .+? \| .+? \|", rows) for rows in (page, page_rows(recordings))]
    assert kinds[0] == kinds[1]
