"""One network on several ranks: the outputs and gradients of one device."""

import itertools

import model_parallel_jobs
import pytest
import torch
from several_ranks import run
from torch import nn

import labkit
from labkit import networks
from labkit.parallel import pipeline

NEAR = 1e-10


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The answers of two ranks, by their numbers: one launch for all tests."""
    return run(2, model_parallel_jobs.everything, tmp_path_factory.mktemp("ranks"))


# ---- tensor parallel


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


def test_a_generator_of_split_blocks_is_the_whole_one_in_every_layer(ranks):
    names = dict(model_parallel_jobs.small_generator().named_parameters())
    for answers in ranks.values():
        assert answers["generator"].keys() == {"output", *names}
        assert max(answers["generator"].values()) <= NEAR


@pytest.mark.skipif(torch.__version__ < "2.15", reason="earlier versions are wrong for other ways of splitting")
def test_dtensor_convolves_rightly_only_what_is_split_by_the_batch(ranks):
    """If PyTorch has learned more: say so in labkit/parallel/tensor.py. The block by hand stays right."""
    assert [answers["dtensor"] for answers in ranks.values()] == [{"batch"}, {"batch"}]


# ---- pipeline


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_is_the_whole_generator(ranks, schedule):
    first, last = (ranks[rank]["pipelines"][schedule] for rank in (0, 1))
    whole = model_parallel_jobs.small_generator().state_dict()
    assert first["names"] and last["names"] and [*first["names"], *last["names"]] == list(whole)
    for stage in (first, last):
        assert stage["same weights"] and list(stage["distances"]) == stage["names"]
        assert max(stage["distances"].values()) <= NEAR, "gradients of two batches, added up"
    assert first["outputs"] == [None, None]
    for output_and_loss in last["outputs"]:
        assert len(output_and_loss) == 2 and max(output_and_loss.values()) <= NEAR


def test_1f1b_keeps_the_activations_of_fewer_microbatches(ranks):
    passes = {
        schedule: [ranks[rank]["pipelines"][schedule]["passes"] for rank in (0, 1)] for schedule in ("gpipe", "1f1b")
    }
    assert passes == {"gpipe": ["FFFFBBBB", "FFFFBBBB"], "1f1b": ["FFBFBFBB", "FBFBFBFB"]}


@pytest.mark.parametrize(("blocks", "stages"), [(9, 2), (9, 4), (3, 9), (0, 6)])
def test_stages_are_whole_and_begin_where_nothing_is_in_place(blocks, stages):
    generator = networks.ResnetGenerator(blocks=blocks, width=4)
    cuts = pipeline._cuts(generator, stages)
    assert len(cuts) == stages + 1 and cuts[0] == 0 and cuts[-1] == len(generator.model)
    assert list(cuts) == sorted(set(cuts))
    for begin in cuts[1:-1]:
        assert not isinstance(generator.model[begin], (nn.ReLU, nn.Tanh, nn.InstanceNorm2d))
    assert sum(pipeline._work(generator)) == labkit.measure.count(generator, 64).flops


def test_stages_have_similar_work():
    generator = networks.ResnetGenerator(blocks=9, width=64)  # a block is four times a strided convolution
    stages = itertools.pairwise(pipeline._cuts(generator, 3))
    parts = [generator.model[begin:end] for begin, end in stages]
    assert [sum(isinstance(layer, networks.ResidualBlock) for layer in part) for part in parts] == [3, 3, 3]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(labkit.LabkitError, match="10 ranks, but .* 9 stages at most"):
        pipeline._cuts(networks.ResnetGenerator(blocks=3, width=4), 10)


# ---- both


@pytest.mark.parametrize(
    ("mistake", "message"),
    {
        "uneven": "2 ranks cannot share the 5 channels between the block's convolutions evenly",
        "grouped": "not this Skip. Between the two convolutions a layer that looks across channels",
        "dropout": "dropout would draw other numbers",
        "twice": "not this SplitBlock",
        "unet": "UnetGenerator is none. In a U-Net skips lead from the first layers to the last ones",
        "batch norm": "batch norm would take its mean over a microbatch",
        "schedule": "schedule='1f1f' is unknown (did you mean '1f1b'?)",
        "microbatches": "Number of microbatches (1) must be greater than or equal to the number of stages (2)",
        "batch": "2 microbatches cannot share a batch of 5 pictures evenly: give a multiple of 2",
    }.items(),
)
def test_a_mistake_is_named_on_every_rank(ranks, mistake, message):
    for answers in ranks.values():
        assert message in answers["refused"][mistake]
