"""What a survey recorded on a GPU is shipped thinned, says so, and tells the same of the steps that are left."""

import gzip
import json
import re

import pandas
import pytest
from synthetic_trace import SyntheticTrace

import labkit
from labkit.course import shipped
from labkit.errors import LabkitError
from labkit.measure.results import SURVEY_FORMAT, write
from tools.evidence import ship, thin


def four_steps():
    """Steps of 100 microseconds in which kernels fall behind: each step's last one runs in the next."""
    trace = SyntheticTrace(labkit={"device": "NVIDIA Imaginary", "steps": 4})
    for number in range(4):
        begin = 1000 + 100 * number
        trace.range(f"ProfilerStep#{number + 3}", begin, 99)
        trace.operator("aten::conv2d", begin + 1, 50)
        trace.launch(begin + 10, begin + 20, 30 + number)
        trace.launch(begin + 80, begin + 105, 10)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"] |= {"grid": [1, 1, 1], "registers per thread": 32}
            event["args"]["Call stack"] = "train.py(7)"
        if event["cat"] == "cpu_op":
            event["args"] |= {"Input Dims": [[16, 3, 64, 64]], "Input type": ["float"]}
    trace.event("Trace", "PyTorch Profiler (0)", 1000, 500)
    arrow = {"cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 1390}
    trace.events += [{"ph": phase, "id": number, **arrow} for phase in "sf" for number in range(1, 9)]
    return trace


def test_a_thinned_trace_tells_the_same_of_its_steps(tmp_path):
    source = four_steps().save(tmp_path / "trace.json")
    thin(source, tmp_path / "new" / "thin.json.gz", steps=2)
    whole, left = labkit.Trace(source).steps(5, 6), labkit.Trace(tmp_path / "new" / "thin.json.gz")
    for table in ("temporal", "idle", "launches", "kernels"):
        of_whole, of_left = getattr(whole, table)(), getattr(left, table)()
        pandas.testing.assert_frame_equal(of_left, of_whole)
    assert left.stamp["device"] == "NVIDIA Imaginary" and left.stamp["steps"] == 2
    assert left.stamp["thinned"].startswith("the last 2 of 4 steps")
    text = gzip.decompress((tmp_path / "new" / "thin.json.gz").read_bytes()).decode()
    assert "grid" not in text and "Call stack" not in text and "Profiler (0)" not in text
    events = json.loads(text)["traceEvents"]
    arrows = [(event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g"]
    kernels = [event["args"]["correlation"] for event in events if event["ph"] == "X" and event["cat"] == "kernel"]
    assert arrows == [(phase, number) for phase in "sf" for number in kernels] and kernels == [5, 6, 7, 8]
    operators = [event["args"] for event in events if event["ph"] == "X" and event["cat"] == "cpu_op"]
    assert operators == [{"Input Dims": [[16, 3, 64, 64]], "Input type": ["float"]}] * 2
    (unmarked := SyntheticTrace()).launch(0, 10, 10)
    with pytest.raises(LabkitError, match="no step is marked"):
        thin(unmarked.save(tmp_path / "unmarked.json"), tmp_path / "new" / "other.json.gz")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["thin.json.gz"]


def test_times_are_shipped_to_the_nanosecond(tmp_path):
    trace = four_steps()
    for number, event in enumerate(trace.events):
        if "dur" in event:
            event["ts"], event["dur"] = f"{1712195495519689 + event['ts']}.{number:03d}", f"{event['dur']}.001"
    text = re.sub(r'"(\d+\.\d{3})"', r"\1", json.dumps(trace.meta | {"traceEvents": trace.events}))
    (tmp_path / "trace.json").write_text(text)
    thin(tmp_path / "trace.json", tmp_path / "thin.json.gz", steps=4)
    whole, left = labkit.Trace(tmp_path / "trace.json"), labkit.Trace(tmp_path / "thin.json.gz")
    assert (whole.ranks[0].kernels["begin"] % 1 > 0).any(), "no whole microseconds"
    for table in ("temporal", "idle", "kernels"):
        pandas.testing.assert_frame_equal(getattr(left, table)(), getattr(whole, table)(), check_exact=True)


def test_fewer_steps_are_shipped_where_more_would_be_too_large(tmp_path):
    source = four_steps().save(tmp_path / "trace.json")
    sizes = {}
    for steps in (1, 2, 3):
        thin(source, tmp_path / "thin.json.gz", steps)
        sizes[steps] = (tmp_path / "thin.json.gz").stat().st_size
    for budget, steps in ((sizes[3], 3), (sizes[3] - 1, 2), (10, 1)):
        thin(source, tmp_path / "thin.json.gz", 3, budget)
        assert labkit.Trace(tmp_path / "thin.json.gz").stamp["steps"] == steps


@pytest.fixture
def surveyed(tmp_path):
    """Two folders of one survey: results in the last, a trace in each."""
    rows = {}
    for folder, speedups, model in (
        ("one", [], "CycleGAN"),
        ("two", ["streams", "bf16"], "CycleGAN"),
        ("two", [], "Other"),
    ):
        file = f"{model}-{'-'.join(speedups)}.json.gz"
        (tmp_path / folder).mkdir(exist_ok=True)
        four_steps().save(tmp_path / folder / file)
        what = {"model": model, "scope": "step", "tf32": "default", "size": 256, "batch_size": 16, "speedups": speedups}
        rows[file] = {"kind": "trace", "settings": {"generator": "unet_256"}, "file": file, **what}
    stamp = {"device": "NVIDIA Imaginary", "ran_on": "cuda"}
    results = {
        "format": SURVEY_FORMAT,
        "stamp": stamp,
        "rows": {"device": {"kind": "device"}, **rows},
        "skipped": {},
    }
    write(results, tmp_path / "two" / "results.json")
    return [tmp_path / "one", tmp_path / "two"]


def test_a_survey_is_shipped_where_notebooks_look_for_it(surveyed, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    files = ship(surveyed, "imaginary", tmp_path / "data")
    assert sorted(file for file in (tmp_path / "data").rglob("*.json*")) == sorted(files) and len(files) == 3
    for speedups in ((), ("bf16", "streams")):
        trace = labkit.gpu_trace(*speedups, batch_size=16, generator="unet_256")
        assert trace.stamp["thinned"] and "SIMULATED" not in trace.stamp
    assert labkit.gpu_results()["imaginary"]["stamp"]["device"] == "NVIDIA Imaginary"


def test_what_is_missing_or_of_no_gpu_is_not_shipped(surveyed, tmp_path):
    with pytest.raises(LabkitError, match="in none of the folders"):
        ship(surveyed[1:], "imaginary", tmp_path / "data")
    results = json.loads((surveyed[1] / "results.json").read_text())
    results["stamp"] = {"device": "a CPU", "ran_on": "cpu"}
    write(results, surveyed[1] / "results.json")
    with pytest.raises(LabkitError, match="a CPU, which is no GPU"):
        ship(surveyed, "imaginary", tmp_path / "data")
