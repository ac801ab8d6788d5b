"""A generator as a pipeline on several ranks: the outputs and gradients of one device."""

import itertools
import re

import pipeline_parallel
import pytest
from pipeline_parallel import Pipeline, cuts, work
from several_ranks import launch
from torch import nn

import labkit
from labkit import networks

pytestmark = pytest.mark.slow


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


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(labkit.LabkitError, match="Batch norm would take its mean over a microbatch"):
        Pipeline(networks.ResnetGenerator(1, 1, "batch"), 2, nn.functional.mse_loss)
    with pytest.raises(labkit.LabkitError, match="10 ranks, but .* 9 stages at most"):
        cuts(networks.ResnetGenerator(blocks=3, width=4), 10)


def test_the_program_compares_both(tmp_path):
    launch(2, tmp_path, pipeline_parallel.main)
    found = re.findall("(.*): stages of .*, largest difference .* (.*)", (tmp_path / "messages of rank 0").read_text())
    assert [schedule for schedule, _ in found] == ["gpipe", "1f1b"] and all(float(far) < 1e-12 for _, far in found)
