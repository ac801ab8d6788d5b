"""What a survey measured, in the form of a comparison; and which step to take from one."""

import math

import pandas
import pytest

from labkit import show
from labkit.errors import LabkitError
from labkit.measure.autotune import pick
from labkit.measure.surveyed import comparison_of


def timing(speedups, faster, batch_size=16, bytes_held=4e9):
    """A row of six rounds in which the baseline took a second."""
    return {
        "kind": "timing",
        "settings": {"generator": "resnet_9blocks"},
        "size": 256,
        "batch_size": batch_size,
        "scope": "step",
        "tf32": "default",
        "speedups": list(speedups),
        "seconds": {"baseline": [1.0] * 6, "variant": [1 / faster] * 6},
        "peak_bytes": {"baseline": 8e9, "variant": bytes_held},
        "flops": 2e12,
    }


@pytest.fixture
def results():
    rows = {
        "device": {"kind": "device", "matmul_flop_per_s": {"float32": 5e13, "tf32": 4e14}},
        "a": timing((), 1.0, bytes_held=8e9),
        "b": timing(("bf16",), 2.0),
        "c": timing(("streams",), 3.0),
        "d": timing(("graph", "bf16"), 2.5, bytes_held=7e9),
        "e": timing(("bf16",), 9.0, batch_size=1),
        "wrong": {"kind": "correctness", "speedups": ["streams"], "ok": False},
    }
    return {"stamp": {"device": "Imaginary", "torch": "2.11", "threads": 1}, "rows": rows}


def test_a_survey_s_timings_are_a_comparison(results):
    table = comparison_of(results, batch_size=16)
    assert table.index.tolist() == ["baseline", "baseline again", "bf16", "streams", "graph+bf16"]
    assert table["verdict"].tolist() == ["baseline", "noise", "faster", "not equivalent", "faster"]
    assert table.loc["bf16", ["times_faster", "images_per_s"]].tolist() == pytest.approx([2.0, 32.0])
    assert table.loc["bf16", "share_of_peak"] == pytest.approx(2e12 / 0.5 / 4e14)
    figure = show.comparison_figure({"Imaginary": table})
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
