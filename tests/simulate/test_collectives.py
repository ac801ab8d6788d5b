"""The collectives that are counted on the meta device are those that real ranks exchange."""

import json
import math
import os

import pytest
import torch
import torch.distributed as dist
from several_ranks import run
from tiny import TINY
from torch.profiler import ProfilerActivity, profile

import labkit
from labkit.measure.record import write_profile
from labkit.simulate import shared_step, step_memory, step_operators
from labkit.simulate.collectives import fake_ranks


def small():
    torch.manual_seed(0)
    return labkit.CycleGAN(**{**TINY, "ngf": 24})


@pytest.fixture(scope="module")
def counted():
    return shared_step(small(), size=32)


def observed(folder):
    """The type and the bytes of each message that gloo exchanged in a step, as PyTorch's profiler sees them."""
    os.environ["KINETO_LOG_LEVEL"] = "6"
    pictures = tuple(torch.rand(1, 3, 32, 32) * 2 - 1 for _ in range(2))
    step = labkit.make_step(small(), "data_parallel")
    step(*pictures)  # after a first step DDP has its final buckets
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(*pictures)
    events = json.loads(write_profile(profiler, folder / "shapes.json").read_text())["traceEvents"]
    sent = [event["args"] for event in events if "dur" in event and event["name"] == "gloo:all_reduce"]
    assert {args["Input type"][0] for args in sent} == {"float"}
    return [("float32", 4 * math.prod(args["Input Dims"][0])) for args in sent]


@pytest.mark.slow
def test_counted_messages_are_those_that_gloo_sent(counted, tmp_path):
    sent = run(2, observed, tmp_path)
    assert sorted((collective.dtype, collective.bytes) for collective in counted.collectives) == sorted(sent)
    assert len({size for _, size in sent}) == 4, "two buckets of the generators, one of the discriminators, the losses"


def test_every_gradient_is_exchanged_once_and_every_loss(counted):
    model = small()
    losses = labkit.make_step(model)(*(torch.zeros(1, 3, 32, 32) for _ in range(2)))
    for player, weights in model.players().items():
        of_player = [each for each in counted.collectives if each.range == f"{player} backward"]
        assert sum(each.bytes for each in of_player) == 4 * sum(weight.numel() for weight in weights)
    assert [each.bytes for each in counted.collectives if not each.range] == [4 * len(losses)]
    assert counted.gradient_bytes == 4 * sum(weight.numel() for weight in model.parameters())


def test_a_bucket_is_ready_with_its_last_gradient_and_awaited_where_ddp_makes_views_of_it(counted):
    operators = counted.operators
    for collective in counted.collectives[:-1]:
        before = operators[collective.ready - 1]
        assert before.name == "aten::copy_" and before.range == collective.range
        seen, place = 0, collective.awaited
        while seen < collective.bytes:
            assert operators[place].name == "aten::as_strided"
            seen += 4 * torch.Size(operators[place].outputs[0]).numel()
            place += 1
        assert seen == collective.bytes
    generators = [each for each in counted.collectives if each.range.startswith("generators")]
    assert generators[0].ready < generators[1].ready == generators[0].awaited, "the first is sent during the backward"


def test_beside_the_copies_of_ddp_the_operators_are_those_of_the_step(counted):
    """Names only: the ranks share the pool, so its buffer is smaller."""
    plain = iter([operator.name for operator in step_operators(small(), size=32)])
    added, expected = set(), next(plain)
    for operator in counted.operators:
        if operator.name == expected:
            expected = next(plain, None)
        else:
            added.add(operator.name)
    assert expected is None, "an operator of the step is missing"
    copying, losses = {"aten::copy_", "aten::as_strided", "aten::detach"}, {"aten::stack", "aten::div", "aten::unbind"}
    assert added <= copying | losses


def test_memory_counts_the_buckets(counted):
    alone = step_memory(small(), size=32)
    assert alone < counted.memory <= alone + counted.gradient_bytes


@pytest.mark.slow
@pytest.mark.parametrize("speedups, settings", [(("bf16",), {}), (("accumulate",), {"batch_size": 2})])
def test_16_bits_and_micro_batches_send_the_same_bytes(tiny, speedups, settings):
    """Only the last micro-batch sends, and gradients of 32-bit weights have 32 bits."""
    model = tiny()
    found = shared_step(model, *speedups, size=16, **settings)
    assert [(each.bytes, each.dtype) for each in found.collectives] == [
        *((4 * sum(weight.numel() for weight in weights), "float32") for weights in model.players().values()),
        (32, "float32"),
    ]


def test_the_group_ends_with_the_context_even_after_an_error():
    with pytest.raises(ZeroDivisionError), fake_ranks(1024):
        assert dist.get_world_size() == 1024
        raise ZeroDivisionError
    assert not dist.is_initialized()
    with pytest.raises(labkit.LabkitError, match="graph"):
        shared_step(labkit.CycleGAN(), "graph")
    with pytest.raises(labkit.LabkitError, match="model is a Linear: give"):
        shared_step(torch.nn.Linear(2, 2))
    assert not dist.is_initialized()
