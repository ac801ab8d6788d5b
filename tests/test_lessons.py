"""The lessons' helpers: a step that listens computes the same."""

import torch

import labkit
from labkit.course import Listening


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
