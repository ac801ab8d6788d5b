"""The lessons' helpers: a step that listens computes the same, and a forward pass is a part of its step."""

import pytest
import torch

import labkit
from labkit.course import Listening, play_forward
from labkit.simulate import step_operators


def test_a_step_that_listens_computes_the_same_and_keeps_every_gradient(tiny, batch):
    plain, listening = labkit.make_step(tiny()), labkit.make_step(tiny(), Listening)
    for _ in range(2):
        losses, heard = plain(*batch()), listening(*batch())
        assert losses.keys() == heard.keys() and all(torch.equal(losses[name], heard[name]) for name in losses)
    for player, weights in listening.players.items():
        gradients = listening.heard[player]
        assert gradients.ndim == 1 and gradients.isfinite().all() and gradients.any()
        assert len(gradients) > sum(weight.numel() for weight in weights), "and those at the convolutions' outputs"
    assert not any(layer._forward_hooks for layer in listening.model.modules())


@pytest.fixture(scope="module")
def operators(tiny):
    model = tiny()
    return {streams: step_operators(model, *streams, size=32) for streams in ((), ("streams",))}


def test_a_forward_pass_by_itself_is_a_part_of_the_step(operators):
    one = play_forward(operators[()])
    assert set(one.stream) == {7}
    assert 0 < len(one.stream) < len(labkit.simulate.replay(operators[()], 40.0, steps=1).launches) / 2
    assert play_forward(operators[()], host_us=80.0).wall > 1.5 * one.wall
