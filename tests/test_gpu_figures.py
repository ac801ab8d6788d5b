"""The tables of a surveyed GPU: from rows and traces whose answers are known beforehand."""

import pytest
from test_replay_errors import FORETOLD, HOST_US, MODEL, SETTINGS, data, row, survey  # noqa: F401  # data is a fixture
from test_surveyed import timing

import labkit
from labkit.simulate import replay, step_operators
from tools.evidence import best_stacks, energy, idle, roofline_seconds, two_streams

STEP_FLOPS = 1879e9  # of CycleGAN with ResNet-9 and identity loss on a picture of either domain, counted by others


def results(*rows, rates, bytes_per_s):
    device = {"kind": "device", "matmul_flop_per_s": rates, "copy_bytes_per_s": bytes_per_s}
    return {"stamp": {"device": "Imaginary"}, "rows": {"device": device, **dict(rows)}}


def test_the_best_stack_and_its_share_of_the_roofline():
    rows = [timing((), 1.0, batch_size=1), timing(("bf16",), 2.0, batch_size=1), timing(("graph",), 1.5, batch_size=1)]
    only_flops = results(*rows, rates={"float32": 1e12, "tf32": 4e12, "bfloat16": 16e12}, bytes_per_s=1e30)
    assert roofline_seconds(only_flops, "resnet_9blocks", 1, ["baseline"]) == pytest.approx(STEP_FLOPS / 4e12, rel=0.01)
    (best,) = best_stacks(only_flops).to_dict("records")
    assert (best["generator"], best["batch"], best["best"], best["times_faster"]) == ("resnet_9blocks", 1, "bf16", 2.0)
    assert best["share_of_roofline"] == pytest.approx(STEP_FLOPS / 16e12 / (best["ms"] / 1e3), rel=0.01)


def test_two_streams_are_shown_for_the_step_and_for_the_cycles_alone():
    rows = [timing((), 1.0), timing(("streams",), 0.9), timing(("bf16",), 2.0)]
    rows += [timing((), 1.0, scope="forward"), timing(("streams",), 1.1, scope="forward")]
    table = two_streams(results(*rows, rates={"float32": 1e12}, bytes_per_s=1e12))
    assert table[["scope", "batch", "times_faster"]].to_numpy().tolist() == [["step", 16, 0.9], ["forward", 16, 1.1]]


def test_energy_is_the_median_of_its_rounds():
    used = {"baseline": [9.0, 4.0, 4.4], "bf16": [2.0, 2.2, 8.0]}
    measured = {"kind": "energy", "batch_size": 16, "speedups": ["bf16"], "joules_per_step": used}
    table = energy(results(("energy", measured), rates={}, bytes_per_s=1.0))
    assert table.to_numpy().tolist() == [[16, "bf16", 4.4, 2.2, 2.0]]


def test_idle_time_is_that_of_the_whole_device_for_each_trace(data):  # noqa: F811
    table = idle("model", survey(*(row(*one) for one in FORETOLD)), data)
    played = replay(step_operators(labkit.CycleGAN(**SETTINGS)), HOST_US, MODEL, steps=3).timeline
    baseline = table.loc["resnet_3blocks_b1_baseline.json.gz"]
    assert baseline["ms"] == pytest.approx(played.wall / 3 / 1e3, rel=0.01)
    assert baseline["idle"] == pytest.approx(played.idle_share, abs=0.01)
    assert baseline["host_wait"] > 0.9 * baseline["idle"] > 0.3
    assert table.loc["resnet_3blocks_b1_batched+graph.json.gz", "idle"] < 0.5 * baseline["idle"]
