"""The lessons' helpers: a step that keeps gradients computes the same, and tables and answers hold."""

import torch
from apart import Alone
from tiny import one_generator

import labkit
from labcourse import RecordGradients, module_flops, passes
from labkit.measure import step_flops


def test_a_step_that_records_computes_the_same_and_keeps_every_gradient(tiny, batch):
    plain, recording = labkit.make_step(tiny()), labkit.make_step(tiny(), RecordGradients)
    for _ in range(2):
        losses, same = plain(*batch()), recording(*batch())
        assert losses.keys() == same.keys() and all(torch.equal(losses[name], same[name]) for name in losses)
    for player, weights in recording.players.items():
        gradients = recording.gradients[player]
        assert gradients.ndim == 1 and gradients.isfinite().all() and gradients.any()
        assert len(gradients) > sum(weight.numel() for weight in weights), "and those at the convolutions' outputs"
    assert not torch.nn.modules.module._global_forward_hooks


def test_passes_are_counted_and_no_hook_stays(tiny, batch):
    step = labkit.make_step(tiny())
    for _ in range(2):
        assert passes(step, *batch()) == {"G_A": 3, "G_B": 3, "D_A": 3, "D_B": 3}


def test_the_counted_work_of_modules_is_that_of_real_steps():
    pictures = (torch.zeros(1, 3, 32, 32),) * 2
    real = {"one process": step_flops(labkit.make_step(one_generator()), pictures)}
    for module in one_generator().players():
        step = labkit.make_step(one_generator(), type("Apart", (Alone,), dict(module=module)))
        real[module] = step_flops(step, pictures)
    assert module_flops(one_generator(), 32) == real
