"""A generator as a pipeline on several ranks: the outputs and gradients of one device."""

import itertools
import re

import model_parallel_jobs
import pipeline_parallel
import pytest
from pipeline_parallel import cuts, work
from several_ranks import launch, run
from torch import nn

import labkit
from labkit import networks

pytestmark = pytest.mark.slow

NEAR = 1e-10


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The answers of two ranks, by their numbers: one launch for all tests."""
    return run(2, model_parallel_jobs.pipelines, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_is_the_whole_generator(ranks, schedule):
    first, last = (ranks[rank][schedule] for rank in (0, 1))
    whole = model_parallel_jobs.small_generator().state_dict()
    assert first["names"] and last["names"] and [*first["names"], *last["names"]] == list(whole)
    for stage in (first, last):
        assert stage["same weights"] and list(stage["distances"]) == stage["names"]
        assert max(stage["distances"].values()) <= NEAR, "gradients of two batches, added up"
    assert first["outputs"] == [None, None]
    for output_and_loss in last["outputs"]:
        assert len(output_and_loss) == 2 and max(output_and_loss.values()) <= NEAR


def test_1f1b_keeps_the_activations_of_fewer_microbatches(ranks):
    passes = {schedule: [ranks[rank][schedule]["passes"] for rank in (0, 1)] for schedule in ("gpipe", "1f1b")}
    assert passes == {"gpipe": ["FFFFBBBB", "FFFFBBBB"], "1f1b": ["FFBFBFBB", "FBFBFBFB"]}


@pytest.mark.parametrize(("blocks", "stages"), [(9, 2), (9, 4), (3, 9), (0, 6)])
def test_stages_are_whole_and_begin_where_nothing_is_in_place(blocks, stages):
    generator = networks.ResnetGenerator(blocks=blocks, width=4)
    begins = cuts(generator, stages)
    assert len(begins) == stages + 1 and begins[0] == 0 and begins[-1] == len(generator.model)
    assert list(begins) == sorted(set(begins))
    for begin in begins[1:-1]:
        assert not isinstance(generator.model[begin], (nn.ReLU, nn.Tanh, nn.InstanceNorm2d))
    assert sum(work(generator)) == labkit.measure.count(generator, 64).flops


def test_stages_have_similar_work():
    generator = networks.ResnetGenerator(blocks=9, width=64)  # a block is four times a strided convolution
    stages = itertools.pairwise(cuts(generator, 3))
    parts = [generator.model[begin:end] for begin, end in stages]
    assert [sum(isinstance(layer, networks.ResidualBlock) for layer in part) for part in parts] == [3, 3, 3]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(labkit.LabkitError, match="10 ranks, but .* 9 stages at most"):
        cuts(networks.ResnetGenerator(blocks=3, width=4), 10)


def test_a_mistake_in_a_pipeline_is_named_on_every_rank(ranks):
    messages = {
        "batch norm": "Batch norm would take its mean over a microbatch",
        "microbatches": "Number of microbatches (1) must be greater than or equal to the number of stages (2)",
        "batch": "2 microbatches cannot share 5 pictures evenly",
    }
    for answers in ranks.values():
        assert not [mistake for mistake, message in messages.items() if message not in answers["refused"][mistake]]


def test_the_program_compares_both(tmp_path):
    launch(2, tmp_path, pipeline_parallel.main)
    found = re.findall("(.*): stages of .*, largest difference .* (.*)", (tmp_path / "messages of rank 0").read_text())
    assert [schedule for schedule, _ in found] == ["gpipe", "1f1b"] and all(float(far) < 1e-12 for _, far in found)
