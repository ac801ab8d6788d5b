"""Split residual blocks on several ranks: the outputs and gradients of one device."""

import re

import model_parallel_jobs
import pytest
import tensor_parallel
from several_ranks import launch, run

pytestmark = pytest.mark.slow

NEAR = 1e-10


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The answers of two ranks, by their numbers: one launch for all tests."""
    return run(2, model_parallel_jobs.tensor_parallel, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", ["instance", "batch", "none", "biases"])
def test_a_split_block_is_the_whole_one(ranks, kind):
    for answers in ranks.values():
        block = answers["blocks"][kind]
        assert {"output", "input", "conv_block.1.weight", "conv_block.5.weight"} <= block["distances"].keys()
        assert max(block["distances"].values()) <= NEAR and max(block["states"].values()) <= NEAR
    assert ("conv_block.5.bias" in block["distances"]) == (kind in ("instance", "biases"))


def test_each_rank_has_half_of_a_split_block_and_adds_up_once_in_either_pass(ranks):
    weights = 3 * 3 * 4 * 6  # of either convolution, whole
    for answers in ranks.values():
        assert answers["blocks"]["none"]["parameters"] == weights
        assert answers["blocks"]["biases"]["parameters"] == weights + 6 // 2 + 4
        assert {block["all-reduces"] for block in answers["blocks"].values()} == {(1, 1)}


def test_a_mistake_in_splitting_is_named_on_every_rank(ranks):
    messages = {
        "uneven": "2 ranks cannot share 5 channels evenly",
        "grouped": "This Skip has other layers than a labkit.networks.ResidualBlock",
        "dropout": "dropout would differ from rank to rank",
        "twice": "This SplitBlock has other layers",
    }
    for answers in ranks.values():
        assert not [mistake for mistake, message in messages.items() if message not in answers["refused"][mistake]]


def test_the_program_compares_both(tmp_path):
    launch(2, tmp_path, tensor_parallel.main)
    said = (tmp_path / "messages of rank 0").read_text()
    assert "weights of rank 0: 161,827 of 272,515\n" in said
    assert all(float(number) < 1e-12 for number in re.findall("difference of .*: (.*)", said)), said
