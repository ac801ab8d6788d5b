"""`predict`: any program on the meta device, its time on GPUs and what bounds it."""

import copy

import pytest
import torch
from torch import nn

from labkit.errors import LabkitError
from labkit.simulate import ROOFLINES, predict
from labkit.simulate.operator_replay import RANGES


def rows(table):
    return table.set_index(["device", "launch"])


def test_a_large_product_is_bound_by_arithmetic_and_a_large_sum_by_memory():
    a, b = (torch.empty(8192, 8192, device="meta", dtype=torch.float16) for _ in range(2))
    assert set(predict(lambda: a @ b)["bound_by"]) == {"arithmetic"}
    assert set(predict(lambda: a + b)["bound_by"]) == {"memory"}


def test_many_small_kernels_are_bound_by_the_host_and_a_graph_frees_them():
    picture = torch.empty(1000, device="meta")
    table = rows(predict(lambda: [picture.add_(1) for _ in range(100)], device="A100", host_us=20.0))
    assert table.loc[("A100", "eager"), "bound_by"] == "host" and table.loc[("A100", "eager"), "launches"] == 100
    graph = table.loc[("A100", "graph")]
    assert graph["bound_by"] == "memory" and graph["SIMULATED_ms"] < table.loc[("A100", "eager"), "SIMULATED_ms"] / 4


def test_a_module_on_the_cpu_is_predicted_and_left_where_it_is():
    module = nn.Linear(1000, 1000)
    table = predict(module, torch.ones(8, 1000))
    assert len(table) == 2 * len(ROOFLINES) and next(module.parameters()).device.type == "cpu"
    assert "SIMULATED_ms" in table and table.attrs["stamp"]["SIMULATED"] is True
    weights, results = 1000 * 1001 * 4, 2 * 8 * 1000 * 4
    assert table["memory_GB"][0] == pytest.approx((weights + results) / 1e9, abs=0.005)


LAYER, PICTURE = nn.Conv2d(64, 64, 3, device="meta"), torch.empty(64, 64, 128, 128, device="meta")


GROUPED, LAST = nn.Conv2d(64, 64, 3, groups=8, device="meta"), PICTURE.to(memory_format=torch.channels_last)
CHANNELS_LAST = "autocast, channels-last grouped convolutions"
KINDS = [
    ((LAYER, PICTURE), "float32, dense convolutions"),
    ((GROUPED, PICTURE), "float32, grouped convolutions"),
    ((nn.Conv2d(64, 64, 3, groups=64), PICTURE), "float32, depthwise convolutions"),
    ((copy.deepcopy(LAYER).half(), PICTURE.half()), ""),  # too few networks are known
    ((lambda: torch.autocast("cuda", torch.float16)(LAYER)(PICTURE),), "autocast, dense convolutions"),
    ((lambda: torch.autocast("cuda", torch.float16)(GROUPED)(LAST).sum().backward(),), CHANNELS_LAST),
    ((nn.Linear(4096, 4096), torch.ones(8192, 4096)), ""),
    ((LAYER, PICTURE[:1, :, :8, :8]), ""),  # the host decides
]


@pytest.mark.parametrize("step, kind", KINDS)
def test_a_range_is_told_where_steps_of_the_kind_were_measured(step, kind):
    table = predict(*step, graph=False).set_index("device")
    told = table.dropna(subset=["low_ms", "high_ms"])
    assert set(told.index) == set(RANGES["devices"].get(kind, "; ").split("; ")) - {""}
    for _, own in told.iterrows():
        ends = RANGES.loc[kind, ["low", "high"]].tolist()
        assert [own["SIMULATED_ms"] / own[end] for end in ("high_ms", "low_ms")] == pytest.approx(ends, 0.02)


def test_devices_without_the_step_s_type_have_no_row():
    table = predict(copy.deepcopy(LAYER).bfloat16(), PICTURE.bfloat16())
    assert set(table["device"]) == set(ROOFLINES) - {"V100", "T4"} and table["low_ms"].isna().all()


REFUSED = [
    (lambda: torch.ones(3, device="meta").sum().item(), "may not read a tensor's values"),
    (lambda: torch.ones(3, device="meta") + torch.ones(3), "have to be on the meta"),
    (lambda: torch.ones(3) + 1, "computed nothing on the meta device"),
    (lambda: torch.ones(3, 3, device="meta").double() @ torch.ones(3, 3, device="meta").double(), "type"),
    (lambda: torch.autocast("cuda")(nn.functional.binary_cross_entropy)(PICTURE, PICTURE), "unsafe to autocast"),
]


@pytest.mark.parametrize("step, told", REFUSED)
def test_a_step_that_the_meta_device_or_the_gpu_cannot_run_is_refused(step, told):
    with pytest.raises(LabkitError, match=told):
        predict(step)
