"""The memory of a step, counted on the meta device: what lives, until it is freed, and no view twice."""

import collections
import itertools

import pytest
import torch

from labkit.simulate import memory_events, step_memory, step_operators
from labkit.simulate.meta_device import LiveBytes

pytestmark = pytest.mark.slow


def test_what_lives_is_counted_once_until_it_is_freed():
    with LiveBytes() as live:
        first = torch.empty(1000, device="meta")
        second = torch.empty(500, device="meta")
        view = first.view(10, 100)
        assert live.now == 6000
        del second
        assert live.now == 4000
        del first
        assert live.now == 4000, "the view still holds it"
        del view
        assert live.now == 0 and live.peak == 6000
        torch.empty(1000)
        assert live.now == 0, "not on the meta device"


def test_memory_holds_weights_gradients_and_moments_and_grows_evenly_with_the_batch(tiny):
    model = tiny(pool_size=0)
    one, two, three = (step_memory(model, batch_size=size, size=32) for size in (1, 2, 3))
    assert three - two == two - one
    weights = sum(weight.nbytes for weight in model.parameters())
    assert 2 * one - two > 3 * weights


def test_the_events_of_a_step_reach_its_peak_and_end_where_they_began(tiny):
    events = memory_events(tiny(), size=32)
    heights = list(itertools.accumulate(nbytes for _, nbytes in events))
    assert max(heights) == step_memory(tiny(), size=32)
    assert events[0] == ("before the step", heights[0]) and heights[-1] == pytest.approx(heights[0], rel=0.01)


def test_what_a_range_takes_it_gives_back_or_leaves_to_the_next_step(tiny):
    held = collections.Counter()
    for name, nbytes in memory_events(tiny(), size=32):
        held[name] += nbytes
        assert held[name] >= 0, name
    assert held["generators forward"] < held["before the step"] / 10


def test_speedups_of_memory_save_it(tiny):
    model = tiny(pool_size=0, ngf=16)
    shape = dict(batch_size=2, size=64)
    baseline = step_memory(model, **shape)
    assert step_memory(model, "bf16", **shape) < 0.65 * baseline
    assert step_memory(model, "recompute", **shape) < 0.5 * baseline
    assert step_memory(model, "accumulate", **shape) < 0.65 * baseline


def test_recomputing_runs_the_forward_passes_of_the_generators_again_in_the_same_type(tiny):
    generator_passes, layers = 6, 12
    operators = step_operators(tiny(), "recompute", "bf16", size=32)
    convolutions = [operator for operator in operators if operator.name == "aten::convolution"]
    again = [operator for operator in convolutions if operator.range == "generators backward"]
    assert len(again) == generator_passes * layers
    assert {operator.dtype for operator in convolutions} == {"bfloat16"}
