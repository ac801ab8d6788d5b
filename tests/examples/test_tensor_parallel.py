"""Split residual blocks on several ranks: the outputs and gradients of one device."""

import re

import pytest
import tensor_parallel
import torch
from several_ranks import launch
from tensor_parallel import split_block, whole
from torch import nn

import labkit
from labkit import LabkitError, networks

pytestmark = pytest.mark.slow


def noise(seed=0):
    return torch.rand(2, 4, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def gradients(network):
    return {name: weight.grad for name, weight in network.named_parameters()}


def compare(kind):
    """A split block and the whole one. That called "biases" has no norms, which would take the biases out again."""
    torch.manual_seed(0)  # the same weights on every rank, all far from zero
    one = networks.ResidualBlock(4, "instance" if kind == "biases" else kind, inner=6).double()
    for weight in one.parameters():
        nn.init.normal_(weight, 0.0, 0.3)
    split = split_block(one)
    if kind == "biases":
        for made in (one, split):
            made.conv_block[2] = made.conv_block[6] = nn.Identity()
    here, there = (noise().requires_grad_() for _ in range(2))
    right = one(there)
    (right * noise(1)).sum().backward()
    output = split(here)
    (output * noise(1)).sum().backward()
    found, expected = whole(gradients(split)), gradients(one)
    assert {"conv_block.1.weight", "conv_block.5.weight"} <= expected.keys()
    assert ("conv_block.5.bias" in expected) == (kind in ("instance", "biases"))
    pairs = {"output": (output, right), "input": (here.grad, there.grad), "gradients": (found, expected)}
    pairs["states"] = whole(split.state_dict()), one.state_dict()  # of batch norm the running statistics, too
    for name, pair in pairs.items():
        torch.testing.assert_close(*pair, rtol=1e-10, atol=1e-11, msg=lambda text, name=name: f"{kind}, {name}: {text}")


def compare_all():
    with labkit.ranks.process_group():
        for kind in ("instance", "batch", "none", "biases"):
            compare(kind)


def test_a_split_block_is_the_whole_one(tmp_path):
    launch(2, tmp_path, compare_all)


def test_blocks_that_cannot_be_split_are_refused(monkeypatch):
    with_dropout = networks.ResidualBlock(4)
    with_dropout.conv_block.insert(4, nn.Dropout())
    for block in (networks.grouped_block(8), with_dropout, split_block(networks.ResidualBlock(4))):
        with pytest.raises(LabkitError, match=f"This {type(block).__name__} has other layers than"):
            split_block(block)
    monkeypatch.setattr(labkit.ranks, "count", lambda: 2)
    with pytest.raises(LabkitError, match="2 ranks cannot share 5 channels evenly"):
        split_block(networks.ResidualBlock(4, inner=5))


def test_the_program_compares_both(tmp_path):
    launch(2, tmp_path, tensor_parallel.main)
    said = (tmp_path / "messages of rank 0").read_text()
    assert "weights of rank 0: 161,827 of 272,515\n" in said
    assert all(float(number) < 1e-12 for number in re.findall("difference of .*: (.*)", said)), said
