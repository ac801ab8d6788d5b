"""What a survey recorded on a GPU is shipped thinned, says so, and answers with numbers that are known beforehand."""

import gzip
import json
import re
from dataclasses import asdict
from pathlib import Path

import pandas
import pytest
from synthetic_trace import SyntheticTrace

import labcourse
import labkit
from benchmarks.authoring.evidence import best_stacks, foretold_rows, ship, thin
from benchmarks.authoring.survey import Item
from labcourse import shipped
from labkit.errors import LabkitError
from labkit.measure.tables import SURVEY_FORMAT, read_results, write_results

pytestmark = pytest.mark.slow

# ---- shipping


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
    source = four_steps().save(tmp_path / "trace.json.gz")
    thin(source, tmp_path / "new" / "thin.json.gz", {"cudnn_benchmark": False}, steps=2)
    whole, left = labkit.Trace(source).steps(5, 6), labkit.Trace(tmp_path / "new" / "thin.json.gz")
    for table in ("temporal", "idle", "kernels"):
        of_whole, of_left = getattr(whole, table)(), getattr(left, table)()
        pandas.testing.assert_frame_equal(of_left, of_whole)
    assert left.stamp["device"] == "NVIDIA Imaginary" and left.stamp["steps"] == 2
    assert left.stamp["thinned"].startswith("the last 2 of 4 steps") and not left.stamp["cudnn_benchmark"]
    text = gzip.decompress((tmp_path / "new" / "thin.json.gz").read_bytes()).decode()
    assert "grid" not in text and "Call stack" not in text and "Profiler (0)" not in text
    events = json.loads(text)["traceEvents"]
    arrows = [(event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g"]
    kernels = [event["args"]["correlation"] for event in events if event["ph"] == "X" and event["cat"] == "kernel"]
    assert arrows == [(phase, number) for phase in "sf" for number in kernels] and kernels == [5, 6, 7, 8]
    operators = [event["args"] for event in events if event["ph"] == "X" and event["cat"] == "cpu_op"]
    assert operators == [{"Input Dims": [[16, 3, 64, 64]], "Input type": ["float"]}] * 2


def survey(*rows, device="NVIDIA Imaginary", ran_on="cuda"):
    """A survey's results with these rows, of which each has its key."""
    stamp = {"device": device, "ran_on": ran_on}
    return {"format": SURVEY_FORMAT, "stamp": stamp, "rows": dict(rows), "skipped": {}}


def recorded(settings, file, **fields):
    item = Item("trace", 15, settings, **fields)
    return item.key, json.loads(json.dumps(asdict(item))) | {"file": file, "seconds_per_step": 0.1}


@pytest.fixture
def surveyed(tmp_path):
    """The folder of a survey: results, and three traces."""
    unet = dict(settings={"generator": "unet_256"}, batch_size=16)
    rows = [
        recorded(file="1.json.gz", **unet),
        recorded(file="2.json.gz", speedups=("streams", "bf16"), **unet),
        recorded(file="3.json.gz", benchmark=False, **unet),
        recorded(file="4.json.gz", model="Other", **unet),
    ]
    folder = tmp_path / "survey"
    folder.mkdir()
    for number in (1, 2, 3):
        four_steps().save(folder / f"{number}.json.gz")
    write_results(survey(*rows), folder / "results.json")
    return folder


def test_a_survey_is_shipped_where_notebooks_look_for_it(surveyed, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    files = ship(surveyed, "imaginary", tmp_path / "data")
    assert sorted(file for file in (tmp_path / "data").rglob("*.json*")) == sorted(files) and len(files) == 4
    for speedups in ((), ("bf16", "streams")):
        trace = labcourse.gpu_trace(*speedups, batch_size=16, generator="unet_256")
        assert trace.stamp["thinned"] and trace.stamp["cudnn_benchmark"] and "SIMULATED" not in trace.stamp
    assert read_results(tmp_path / "data" / "results" / "imaginary.json")["stamp"]["device"] == "NVIDIA Imaginary"


def test_what_is_missing_or_of_no_gpu_is_not_shipped(surveyed, tmp_path):
    (surveyed / "2.json.gz").unlink()
    with pytest.raises(LabkitError, match="2.json.gz: missing"):
        ship(surveyed, "imaginary", tmp_path / "data")
    write_results(survey(device="a CPU", ran_on="cpu"), surveyed / "results.json")
    with pytest.raises(LabkitError, match="a CPU, which is no GPU"):
        ship(surveyed, "imaginary", tmp_path / "data")


# ---- answers


def test_the_best_stacks_are_those_of_the_survey_and_none_that_it_found_wrong():
    results = read_results(shipped.DATA / "results" / "h200.json")
    found = best_stacks(results)
    assert found[["generator", "batch"]].to_numpy().tolist() == [["resnet_9blocks", 1], ["resnet_9blocks", 16]]
    assert (found["times_faster"] > 1).all() and found["share_of_roofline"].between(0.1, 1).all()
    results["rows"]["wrong"] = {"kind": "correctness", "speedups": found["best"][0].split("+"), "ok": False}
    assert best_stacks(results)["best"][0] != found["best"][0]


def test_the_page_has_the_steps_of_the_survey_beside_what_was_foretold():
    rows = foretold_rows("h200")
    assert rows.count("\n") == 17 and rows in (Path(__file__).parents[2] / "docs" / "trust.md").read_text()
    ratios = re.findall(r"^\| 1 .* \((\S+) to (\S+)\) \| \S+ \| (\S+) \|$", rows, re.M)
    assert len(ratios) == 11 and sum(float(low) <= float(told) <= float(high) for low, high, told in ratios) == 8
