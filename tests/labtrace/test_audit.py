"""`Trace.audit`: every fault that is made has its row, and a sound recording has none."""

import json

import pytest
from synthetic_trace import SyntheticTrace, on_a_cpu, two_ranks, two_streams

from labtrace.trace import Trace


@pytest.mark.parametrize("make", [two_streams, on_a_cpu, lambda: two_ranks()[0]])
def test_nothing_is_found_in_a_sound_recording(tmp_path, make):
    assert Trace(make().save(tmp_path / "trace.json")).audit().empty


def dropped(trace):
    trace.call(400)


def without_launch(trace):
    trace.kernel(800, 10)


def clock_step(trace):
    trace.launch(900, 850, 10)


def overlapping(trace):
    trace.launch(600, 605, 50, stream=20)


def calls_overlap(trace):
    trace.operator("aten::item", 585, 30)


def no_duration(trace):
    trace.launch(750, 800, 0)


def uncategorised(trace):
    trace.events.append({"ph": "X", "name": "mystery", "ts": 3, "dur": 4})


def half(trace):
    trace.events.append({"ph": "B", "cat": "cpu_op", "name": "aten::half", "pid": 1, "tid": 1, "ts": 3})


FAULTS = {
    dropped: ("launches whose kernel is missing", 1, "temporal"),
    without_launch: ("whose launch is missing", 1, "queue"),
    clock_step: ("begin before their launch", 1, "launches"),
    overlapping: ("one stream that overlap", 1, "concurrency"),
    calls_overlap: ("one thread that overlap", 1, "operators"),
    no_duration: ("no duration", 1, "kernels"),
    uncategorised: ("without a category", 1, "kernels"),
    half: ("begins and ends without a duration", 1, "operators"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_row(tmp_path, fault):
    what, events, table = FAULTS[fault]
    trace = two_streams()
    fault(trace)
    found = Trace(trace.save(tmp_path / "trace.json")).audit()
    row = found[found["what"].str.contains(what)].iloc[0]
    assert row["events"] == events and table in row["tables"] and row["rank"] == 0


def test_the_profilers_own_warnings_are_shown(tmp_path):
    path = SyntheticTrace(WARNING=["Kineto dropped 7 records"]).save(tmp_path / "trace.json")
    content = json.loads(path.read_text())
    content["traceEvents"] = two_streams().events
    path.write_text(json.dumps(content))
    assert Trace(path).audit()["example"].tolist() == ["Kineto dropped 7 records"]
