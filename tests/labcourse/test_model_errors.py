"""The cost model against real recordings: the work is the same, and the errors are those that the lessons tell of."""

from collections import Counter

import pytest

import labcourse
from labcourse.model_errors import cyclegan_errors, resnet50_errors, resnet50_operators
from labtrace.replay.recorded_replay import read_launches


@pytest.fixture(scope="module")
def recording():
    return labcourse.public_trace("resnet50_workers0")


@pytest.mark.slow
def test_the_program_is_the_recorded_one(recording):
    """It calls the same operators as often, by the names that they have today."""
    (rank,) = recording.ranks.values()
    steps = len(rank.steps)
    launched = Counter({(source.operator, source.operator_name) for source in read_launches(rank).sources})
    recorded = Counter(name for _, name in launched)
    called = Counter(operator.name for operator in resnet50_operators())
    today = {
        "aten::cudnn_convolution": "aten::convolution",
        "aten::cudnn_batch_norm": "aten::native_batch_norm",
        "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
        "aten::threshold_backward": "aten::threshold_backward",
        "aten::clamp_min": "aten::relu_",
        "aten::mul_": "aten::mul_",
        "aten::mm": "aten::mm",
        "aten::addmm": "aten::addmm",
    }
    for then, now in today.items():
        assert recorded[then] == steps * called[now], then
    # The counters of batches are one of them: then by `add`, now by `add_`.
    assert recorded["aten::add_"] + recorded["aten::add"] == steps * (called["aten::add_"] + called["aten::add"])


def test_the_errors_are_within_their_bars(recording):
    table = resnet50_errors(recording)
    ratio = table.set_index("part")["ratio"]
    assert 0.9 < ratio["busy"] < 1.1 and 0.95 < ratio["wall"] < 1.05
    kinds, parts = ratio.drop(["wall", "busy", "idle"]), table.set_index("part")
    large = parts["recorded_ms"] > 0.1 * parts["recorded_ms"]["busy"]
    assert kinds.between(0.5, 1.7).all() and len(kinds) == 7, table
    assert kinds[large].between(0.85, 1.15).all() and large[kinds.index].sum() == 3, table
    assert parts["recorded_ms"].drop(["wall", "idle", "busy"]).sum() == pytest.approx(
        parts["recorded_ms"]["busy"], rel=0.01
    )
    assert table.attrs["stamp"]["SIMULATED"] and "recorded_by" in table.attrs["stamp"]["recording"]


@pytest.mark.slow
def test_on_an_h200_the_kernels_of_cyclegan_are_foretold_a_quarter_too_short():
    table = cyclegan_errors(labcourse.gpu_trace(batch_size=16), 16).set_index("part")
    assert table["ratio"].drop("idle").between(0.6, 0.9).all(), table
    kinds = table.drop(["wall", "busy", "idle"])
    assert kinds["recorded_ms"].sum() == pytest.approx(table.loc["busy", "recorded_ms"], rel=0.03)
    assert kinds.index[0] == "convolutions" and 0.7 < table.loc["busy", "ratio"] < 0.8
