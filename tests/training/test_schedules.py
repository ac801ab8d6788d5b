"""Schedules are those of the public reference, which steps its schedulers once an epoch; and their options."""

import pytest
import torch
from torch.optim import lr_scheduler

import labkit
from labkit import recipes
from labkit.commands.training import schedule as chosen
from labkit.training import schedules

N = 7  # steps of an epoch


def rates(scheduler, epochs, *metric):
    """The factor in each epoch: the reference steps its scheduler at the end of every one."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    running, found = scheduler(optimizer), []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        running.step(*metric)
    return found


SCHEDULES = [
    (
        labkit.linear_schedule(10 * N, 20 * N, epoch=N),
        lambda adam: lr_scheduler.LambdaLR(adam, lambda epoch: 1.0 - max(0, epoch + 1 - 10) / float(20 + 1)),
    ),
    (schedules.step_schedule(8 * N), lambda adam: lr_scheduler.StepLR(adam, step_size=8, gamma=0.1)),
    (schedules.cosine_schedule(30 * N, N), lambda adam: lr_scheduler.CosineAnnealingLR(adam, T_max=30, eta_min=0)),
]


@pytest.mark.parametrize(("schedule", "scheduler"), SCHEDULES, ids=["linear", "step", "cosine"])
def test_every_schedule_is_the_reference_s(schedule, scheduler):
    right = rates(scheduler, 30)
    assert len(set(right)) > 3
    for within in (0, N - 1):
        assert [schedule(epoch * N + within) for epoch in range(30)] == pytest.approx(right, rel=1e-9)


def test_after_its_steps_a_schedule_stays_at_zero():
    """Below, what was learned would be undone."""
    assert schedules.cosine_schedule(10)(15) == labkit.linear_schedule(10, 10)(60) == 0


RECIPE = recipes.Recipe(size=16, steps=100, decay=0.5)


OPTIONS = [
    ("linear", None, labkit.linear_schedule(50, 50)),
    ("linear", 20, labkit.linear_schedule(80, 20)),
    ("step", None, schedules.step_schedule(25)),
    ("step", 10, schedules.step_schedule(10)),
    ("cosine", None, schedules.cosine_schedule(100)),
]


@pytest.mark.parametrize(("policy", "decay", "right"), OPTIONS)
def test_the_options_choose_a_schedule(policy, decay, right):
    schedule = chosen(policy, decay, RECIPE)
    assert [schedule(done) for done in range(101)] == [right(done) for done in range(101)]
