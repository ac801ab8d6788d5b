"""Of a GPU that is itself a model, replays foretell everything; what they cannot foretell is left empty."""

import shutil

import pytest

import labkit
from labkit.course.shipped import ASKED_FOR, shipped_as
from labkit.errors import LabkitError
from labkit.measure import results
from labkit.simulate import ROOFLINES, replay, step_operators, write_trace
from tools.evidence import replay_errors

HOST_US = 30.0
MODEL = ROOFLINES["H100"]
FORETOLD = [(1, ()), (2, ()), (1, ("bf16",)), (1, ("batched", "graph"))]
SETTINGS = {"generator": "resnet_3blocks", "ngf": 8, "ndf": 8}


def row(batch_size, stack):
    return ASKED_FOR | {"kind": "trace", "settings": SETTINGS, "batch_size": batch_size, "speedups": list(stack)}


def survey(*rows):
    durations = {"kind": "durations", "microseconds": {}}
    numbered = {str(number): one for number, one in enumerate([*rows, durations])}
    rates = {name: rate * MODEL.flops_share for name, rate in MODEL.flops_per_s.items()}
    device = {"kind": "device", "matmul_flop_per_s": rates | {"tf32": rates["float32"]}}
    device["copy_bytes_per_s"] = MODEL.bytes_per_s * MODEL.bytes_share
    stamp = {"device": MODEL.device}
    return {"format": results.SURVEY_FORMAT, "stamp": stamp, "rows": numbered | {"device": device}, "skipped": {}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """What tools/evidence.py would have shipped of the model; and one trace whose operators nobody knows."""
    data = tmp_path_factory.mktemp("data")
    folder = data / "traces" / "model"
    folder.mkdir(parents=True)
    for batch_size, stack in FORETOLD:
        names = [name for name in stack if name != "graph"]
        operators = step_operators(labkit.CycleGAN(**SETTINGS), *names, batch_size=batch_size)
        played = replay(operators, HOST_US, MODEL, graph="graph" in stack, steps=3)
        write_trace(played, folder / shipped_as(row(batch_size, stack)))
    shutil.copy(folder / shipped_as(row(1, ())), folder / shipped_as(row(1, ("compile",))))
    rows = [row(*one) for one in [*FORETOLD, (1, ("compile",))]]
    results.write(survey(*rows, row(1, ()) | {"model": "Other"}), data / "results" / "model.json")
    return data


def test_what_can_be_foretold_is(data):
    table = replay_errors("model", data)
    unknown = table.index.str.contains("compile")
    assert len(table) == 5 and table["unmodified"].between(0.98, 1.02).all(), table
    assert table.loc[~unknown, "predicted"].between(0.98, 1.02).all(), table
    assert table.loc[unknown, ["predicted", "measured durations"]].isna().all(axis=None)
    assert (table.loc[~unknown, "measured durations"] == 0).all(), "the survey has none"


def test_without_a_baseline_nothing_is_known_of_the_host(data):
    results.write(survey(row(2, ())), data / "results" / "other.json")
    (data / "traces" / "other").mkdir()
    shutil.copy(data / "traces" / "model" / shipped_as(row(2, ())), data / "traces" / "other")
    with pytest.raises(LabkitError, match="no trace of a baseline of batch 1"):
        replay_errors("other", data)
