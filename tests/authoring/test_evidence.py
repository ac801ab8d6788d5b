"""What a visit recorded on a GPU is shipped thinned, and says so."""

import gzip
import json
import math
from pathlib import Path

import pandas
import pytest
from synthetic_trace import SyntheticTrace

import labcourse
import labkit
from benchmarks.authoring.evidence import ship, thin
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
        trace.range(f"ProfilerStep#{number + 3}", begin, 99).operator("aten::conv2d", begin + 1, 50)
        trace.launch(begin + 10, begin + 20, 30 + number).launch(begin + 80, begin + 105, 10)
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


def results(rows, device="NVIDIA Imaginary", ran_on="cuda"):
    stamp = {"device": device, "ran_on": ran_on}
    return {"format": SURVEY_FORMAT, "stamp": stamp, "rows": {row["file"]: row for row in rows}, "skipped": {}}


def recorded(file, model="CycleGAN", speedups=(), benchmark=True):
    about = {"kind": "trace", "file": file, "model": model, "settings": {"generator": "unet_256"}, "size": 256}
    return about | {"batch_size": 16, "tf32": "default", "benchmark": benchmark, "speedups": speedups}


@pytest.fixture
def visited(tmp_path):
    """The folder of a visit: results, and three traces."""
    rows = [recorded("1.json.gz"), recorded("2.json.gz", speedups=("streams", "bf16"))]
    rows += [recorded("3.json.gz", benchmark=False), recorded("4.json.gz", model="Other")]
    folder = tmp_path / "visit"
    folder.mkdir()
    for number in (1, 2, 3):
        four_steps().save(folder / f"{number}.json.gz")
    write_results(results(rows), folder / "results.json")
    return folder


def test_a_visit_is_shipped_where_notebooks_look_for_it(visited, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    files = ship(visited, "imaginary", tmp_path / "data")
    assert sorted(file for file in (tmp_path / "data").rglob("*.json*")) == sorted(files) and len(files) == 4
    for speedups in ((), ("bf16", "streams")):
        trace = labcourse.gpu_trace(*speedups, batch_size=16, generator="unet_256")
        assert trace.stamp["thinned"] and trace.stamp["cudnn_benchmark"] and "SIMULATED" not in trace.stamp
    assert read_results(tmp_path / "data" / "results" / "imaginary.json")["stamp"]["device"] == "NVIDIA Imaginary"


def test_what_is_missing_or_of_no_gpu_is_not_shipped(visited, tmp_path):
    (visited / "2.json.gz").unlink()
    with pytest.raises(LabkitError, match="2.json.gz: missing"):
        ship(visited, "imaginary", tmp_path / "data")
    write_results(results([], "a CPU", "cpu"), visited / "results.json")
    with pytest.raises(LabkitError, match="a CPU, which is no GPU"):
        ship(visited, "imaginary", tmp_path / "data")


# ---- the steps that were timed


def predicted_rows(device):
    """The rows of the table in docs/trust.md: the steps that were timed on a GPU, beside what was predicted of them."""
    table = labcourse.gpu_steps(device).sort_values(["batch_size", "model", "times_faster"])
    simulated = table.set_index(["model", "batch_size", "speedups"])["SIMULATED_ms"]
    rows = []
    for step in table.itertuples():
        own, called = "baseline", step.speedups.replace("batched+fused_adam+out_of_place", "fewer launches")
        if step.model != "CycleGAN":
            own, called = step.speedups, f"one generator, deviation loss for both domains: {called}"
        faster, predicted, played = "", "", simulated["CycleGAN", step.batch_size, own] / step.SIMULATED_ms
        if step.verdict != "noise":
            faster = f"{step.times_faster:.2f} ({step.low:.2f} to {step.high:.2f})"
            predicted = f"{played:.2f}"
        cells = [step.batch_size, called.replace("+", ", "), f"{step.ms:.1f}", f"{step.baseline_ms:.1f}", faster]
        cells += ["", ""] if math.isnan(played) else [f"{step.SIMULATED_ms:.1f}", predicted]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def test_the_page_has_the_steps_of_the_first_visit_beside_what_was_predicted():
    rows = predicted_rows("h200")
    assert rows.count("\n") == 17 and rows in (Path(__file__).parents[2] / "docs" / "trust.md").read_text()
