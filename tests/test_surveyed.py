"""What a survey measured, in the form of a comparison; and which step to take from one."""

import json
import math
from dataclasses import asdict

import pandas
import pytest

from labkit import show
from labkit.errors import LabkitError
from labkit.measure import pick
from labkit.measure.compare import AGAIN
from labkit.measure.results import as_json
from tools.evidence import comparison_of
from tools.survey_items import Item

TIMES_FASTER = ("times_faster", "times_faster_low", "times_faster_high")
SPEED = (*TIMES_FASTER, "median_s", "spread", "images_per_s", "peak_bytes", "flop_per_s", "share_of_peak")


def timing(speedups, faster, batch_size=16, bytes_held=4e9, **fields):
    """The key and the row of an item whose baseline took a second."""
    stack = "+".join(speedups)
    numbers = dict.fromkeys(SPEED, 1.0) | {"flop_per_s": 2e12, "share_of_peak": 99.0, "peak_bytes": 8e9}
    mine = numbers | {"times_faster": faster, "images_per_s": batch_size * faster, "flop_per_s": 2e12 * faster}
    rows = {
        "baseline": {"verdict": "baseline", "why": "the others are compared with it", **numbers},
        AGAIN.format("baseline"): {"verdict": "noise", "why": "itself", **numbers},
    }
    if speedups:
        rows[stack] = {"verdict": "faster", "why": "measured", **mine, "peak_bytes": bytes_held}
    table = pandas.DataFrame.from_dict(rows, orient="index").assign(loss_difference=0.0, gradient_cosine=1.0)
    shape = [batch_size, 3, 256, 256]
    table.attrs = {"stamp": {"device": "Imaginary", "torch": "2.11", "threads": 1, "batch_shape": shape}, "seconds": {}}
    item = Item("timing", 1, {"generator": "resnet_9blocks"}, 256, batch_size, speedups=speedups, **fields)
    return item.key, json.loads(json.dumps(asdict(item) | {"comparison": as_json(table)}))


@pytest.fixture
def results():
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
    device = {"kind": "device", "matmul_flop_per_s": {"float32": 5e13, "tf32": 4e14}}
    return {"stamp": {}, "rows": {"device": device, **dict(timings), "correctness/step/small/streams": wrong}}


def test_a_survey_s_timings_are_a_comparison(results):
    table = comparison_of(results, batch_size=16)
    assert table.index.tolist() == ["baseline", "baseline again", "bf16", "streams", "graph+bf16"]
    assert table["verdict"].tolist() == ["baseline", "noise", "faster", "not equivalent", "faster"]
    assert table.loc["bf16", ["times_faster", "images_per_s"]].tolist() == pytest.approx([2.0, 32.0])
    assert table.loc["bf16", "share_of_peak"] == pytest.approx(2e12 / 0.5 / 4e14)
    figure = show.comparison_figure(table)
    assert list(figure.data[0].y) == ["baseline", "bf16", "graph+bf16"]


def test_what_was_not_surveyed_is_said(results):
    with pytest.raises(LabkitError, match="no baseline of unet_256, batch 16"):
        comparison_of(results, generator="unet_256", batch_size=16)


def test_pick_takes_the_fastest_that_is_right_and_fits(results):
    table = comparison_of(results, batch_size=16)
    assert pick(table) == "graph+bf16"
    assert pick(table, memory_bytes=6e9) == "bf16" and pick(table, memory_bytes=1e9) == "baseline"
    assert pick(table.assign(peak_bytes=math.nan), memory_bytes=1e9) == "graph+bf16", "a CPU does not count"
    same = pandas.DataFrame({"verdict": ["baseline", "no difference"], "times_faster": [1, 1.2], "peak_bytes": 1.0})
    assert pick(same) == 0
