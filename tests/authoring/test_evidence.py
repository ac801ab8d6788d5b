"""What a survey recorded on a GPU is shipped thinned, says so, and answers with numbers that are known beforehand."""

import gzip
import json
import math
from dataclasses import asdict
from pathlib import Path

import pandas
import pytest
from synthetic_trace import SyntheticTrace

import labcourse
import labkit
from benchmarks.authoring.evidence import (
    best_stacks,
    comparisons,
    foretold_rows,
    roofline_seconds,
    ship,
    thin,
)
from benchmarks.authoring.survey import Item
from labcourse import shipped
from labkit.errors import LabkitError
from labkit.measure import pick
from labkit.measure.compare import SECOND_BASELINE, SURVEY_FORMAT, as_json, read_results, write_results

pytestmark = pytest.mark.slow

RESNET = {"generator": "resnet_9blocks"}

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
    for table in ("temporal", "idle", "launches", "kernels"):
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


# ---- timings

TIMES_FASTER = ("times_faster", "times_faster_low", "times_faster_high")
SPEED = (*TIMES_FASTER, "median_s", "spread", "images_per_s", "peak_bytes", "flop_per_s", "share_of_peak")


def timing(speedups, faster, batch_size=16, bytes_held=4e9, **fields):
    """The key and the row of an item whose baseline took a second."""
    stack = "+".join(speedups)
    numbers = dict.fromkeys(SPEED, 1.0) | {"flop_per_s": 2e12, "share_of_peak": 99.0, "peak_bytes": 8e9}
    mine = numbers | {"times_faster": faster, "images_per_s": batch_size * faster, "flop_per_s": 2e12 * faster}
    rows = {
        "baseline": {"verdict": "baseline", "why": "the others are compared with it", **numbers},
        SECOND_BASELINE.format("baseline"): {"verdict": "noise", "why": "itself", **numbers},
    }
    if speedups:
        rows[stack] = {"verdict": "faster", "why": "measured", **mine, "peak_bytes": bytes_held}
    table = pandas.DataFrame.from_dict(rows, orient="index").assign(loss_difference=0.0, gradient_cosine=1.0)
    shape = [batch_size, 3, 256, 256]
    table.attrs = {"stamp": {"device": "Imaginary", "torch": "2.11", "threads": 1, "batch_shape": shape}, "seconds": {}}
    item = Item("timing", 1, RESNET, 256, batch_size, speedups=speedups, **fields)
    return item.key, json.loads(json.dumps(asdict(item) | {"comparison": as_json(table)}))


def device(rates, bytes_per_s=1e12):
    return "device", {"kind": "device", "matmul_flop_per_s": rates, "copy_bytes_per_s": bytes_per_s}


@pytest.fixture
def timed():
    timings = [
        timing((), 1.0),
        timing(("bf16",), 2.0),
        timing(("streams",), 3.0),
        timing(("graph", "bf16"), 2.5, bytes_held=7e9),
        timing(("bf16",), 9.0, batch_size=1),
        timing((), 1.0, tf32="on"),
        timing(("fp16",), 5.0, model="DeviationGAN"),
    ]
    wrong = {"kind": "correctness", "speedups": ["streams"], "ok": False}
    return survey(device({"float32": 5e13, "tf32": 4e14}), *timings, ("correctness/small/streams", wrong))


def test_a_survey_s_timings_are_a_comparison_from_which_the_fastest_that_is_right_and_fits_is_picked(timed):
    ((generator, batch_size, table),) = comparisons(timed)
    assert (generator, batch_size) == ("resnet_9blocks", 16)
    assert table.index.tolist() == ["baseline", "baseline again", "bf16", "streams", "graph+bf16"]
    assert table["verdict"].tolist() == ["baseline", "noise", "faster", "not equivalent", "faster"]
    assert table.loc["bf16", ["times_faster", "images_per_s"]].tolist() == pytest.approx([2.0, 32.0])
    assert pick(table) == "graph+bf16"
    assert pick(table, memory_bytes=6e9) == "bf16" and pick(table, memory_bytes=1e9) == "baseline"
    assert pick(table.assign(peak_bytes=math.nan), memory_bytes=1e9) == "graph+bf16", "a CPU does not count"
    same = pandas.DataFrame({"verdict": ["baseline", "no difference"], "times_faster": [1, 1.2], "peak_bytes": 1.0})
    assert pick(same) == 0


STEP_FLOPS = 1879e9  # of CycleGAN with ResNet-9 and identity loss on a picture of either domain, counted by others


def test_the_best_stack_and_its_share_of_the_roofline():
    rows = [timing((), 1.0, batch_size=1), timing(("bf16",), 2.0, batch_size=1), timing(("graph",), 1.5, batch_size=1)]
    only_flops = survey(device({"float32": 1e12, "tf32": 4e12, "bfloat16": 16e12}, bytes_per_s=1e30), *rows)
    assert roofline_seconds(only_flops, "resnet_9blocks", 1, ["baseline"]) == pytest.approx(STEP_FLOPS / 4e12, rel=0.01)
    (best,) = best_stacks(only_flops).to_dict("records")
    assert (best["generator"], best["batch"], best["best"], best["times_faster"]) == ("resnet_9blocks", 1, "bf16", 2.0)
    assert best["share_of_roofline"] == pytest.approx(STEP_FLOPS / 16e12 / (best["ms"] / 1e3), rel=0.01)


def test_two_streams_are_shown_for_each_batch_and_mode(tmp_path, monkeypatch):
    rows = [
        (str(benchmark), {"kind": "streams", "batch_size": 1, "benchmark": benchmark, "seconds": seconds})
        for benchmark, seconds in (
            (False, {"one": [1.0] * 6, "two": [2.0] * 6}),
            (True, {"one": [1.0] * 6, "two": [0.5] * 6}),
        )
    ]
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    (tmp_path / "results").mkdir()
    write_results(survey(*rows), tmp_path / "results" / "imaginary.json")
    table = labcourse.gpu_streams("imaginary")
    assert table.to_numpy().tolist() == [[1, False, 1000, 2000, *[0.5] * 3], [1, True, 1000, 500, *[2] * 3]]


def test_the_page_has_the_steps_of_the_survey_beside_what_was_foretold():
    rows = foretold_rows("h200")
    assert rows.count("\n") == 17 and rows in (Path(__file__).parents[2] / "docs" / "trust.md").read_text()
