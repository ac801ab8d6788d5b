"""Checks of notebook 11: the bound of modules apart, the age of weights, the outer step, waves, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

from labkit.course.check.answers import drawn, exercise, expect
from labkit.course.many_nodes import apart_bound as right_bound
from labkit.course.many_nodes import best_interval as right_interval
from labkit.course.many_nodes import mean_age as right_age
from labkit.course.many_nodes import outer_step as right_step
from labkit.course.many_nodes import waves_bound as right_waves


def _other_modules(random: Random) -> list[tuple[float, dict[str, float]]]:
    """Seconds of one process, and of two to five modules apart, to `apart_bound`."""
    return [
        (random.uniform(5, 20), {f"module {i}": random.uniform(1, 9) for i in range(n)})
        for n in random.sample(range(2, 6), 3)
    ]


@exercise(right_bound)
def apart_bound(answer: Callable[[float, Mapping[str, float]], float]) -> None:
    """Compares ``answer(one_process, modules)`` with `labkit.course.apart_bound`."""
    usual = [
        (10.0, {"autoencoder": 3.0, "translator": 6.0, "discriminator": 3.0}),
        (9.0, {"autoencoder": 1.0, "translator": 4.0, "discriminator": 8.0}),
    ]
    for whole, modules in drawn(usual, _other_modules):
        seconds = list(modules.values())
        expect(
            answer(whole, modules),
            right_bound(whole, modules),
            [
                (float(len(modules)), "That is the article's claim: it would hold if all modules took equally long."),
                (max(seconds) / whole, "That is below 1: divide the time before by the time after."),
                (sum(seconds) / max(seconds), "The modules repeat some work: begin with the time of the one process."),
                (whole / sum(seconds), "They work at the same time: their times do not add up."),
                (whole / (sum(seconds) / len(seconds)), "The step is not done after the mean: who is last?"),
                (whole / min(seconds), "The fastest module waits for the others."),
            ],
            "The processes work side by side: how long does the step take then?",
            f"one process {whole:g} s, modules {seconds}",
        )


@exercise(right_age)
def mean_age(answer: Callable[[int], float]) -> None:
    """Compares ``answer(exchange_every)`` with `labkit.course.mean_age`."""
    for every in drawn([4, 10, 100, 1], lambda random: random.sample(range(1, 500), 4)):
        expect(
            answer(every),
            right_age(every),
            [
                (every, "That is how far two exchanges are apart. How old are the weights on the way?"),
                (every / 2, "Just after an exchange they are 0 steps old, just before the next one less than that."),
                ((every + 1) / 2, "The first step after an exchange uses weights that are 0 steps old, not 1."),
                (every - 1, "That is the oldest they get: take the mean over the steps."),
            ],
            "Write down the age in each step between two exchanges, and take the mean.",
            f"an exchange every {every} steps",
        )


@exercise(right_step)
def outer_step(answer: Callable[[float, float, float, float, float], tuple[float, float]]) -> None:
    """Compares ``answer(before, mean, velocity, lr, momentum)`` with `labkit.course.outer_step`."""
    usual = [(2.0, 3.0, 0.4), (0.0, 0.25, -0.5), (1.0, 0.5, 0.0)]
    cases = drawn(usual, lambda random: [(random.random(), random.random(), random.uniform(-1, 1)) for _ in range(4)])
    for before, mean, velocity in cases:
        lr, momentum = drawn((0.7, 0.9), lambda random: (random.uniform(0.1, 1), random.uniform(0.1, 0.9)))
        gradient = before - mean
        heavy = momentum * velocity + gradient
        from_mean = mean - lr * (gradient + momentum * heavy)
        no_decay, turned = velocity + gradient, momentum * velocity - gradient
        expect(
            answer(before, mean, velocity, lr, momentum),
            right_step(before, mean, velocity, lr, momentum),
            [
                ((mean, heavy), "That takes the mean itself: the outer optimizer only steps towards it."),
                (
                    (before - lr * heavy, heavy),
                    "That is momentum without Nesterov, which adds momentum times the new velocity, not the old one.",
                ),
                ((from_mean, heavy), "The step starts from the weight before, not from the mean."),
                ((before - lr * gradient, heavy), "The velocity is there, but the step does not use it."),
                (
                    (before - lr * (gradient + momentum * no_decay), no_decay),
                    "The old velocity counts times the momentum, or it would grow for ever.",
                ),
                (
                    (before - lr * (-gradient + momentum * turned), turned),
                    "It moves away from the mean: the optimizer subtracts its gradient, so that is before - mean.",
                ),
            ],
            "Gradient, velocity and step, in this order: compare each with the text.",
            f"before {before:g}, mean {mean:g}, velocity {velocity:g}",
        )


@exercise(right_waves)
def waves_bound(answer: Callable[[int, int], float]) -> None:
    """Compares ``answer(trials, workers)`` with `labkit.course.waves_bound`."""
    usual = [(24, 2), (3, 3), (6, 4), (2, 8), (7, 3)]
    others = lambda random: [(random.randrange(1, 60), random.randrange(1, 12)) for _ in range(8)]  # noqa: E731
    for trials, workers in drawn(usual, others):
        waves = math.ceil(trials / workers)
        expect(
            answer(trials, workers),
            right_waves(trials, workers),
            [
                (float(workers), "As many workers, so many times faster: but in the last wave some of them may idle."),
                (float(waves), "That is the number of waves: how many times faster is it than one worker?"),
                (trials / (trials // workers or 1), "A part of a wave takes as long as a whole one: round up."),
                (waves / trials, "That is below 1: divide the time of one worker by the time of all of them."),
            ],
            "In a wave each worker trains one trial. How many waves are there?",
            f"{trials} trials, {workers} workers",
        )


@exercise(right_interval)
def best_interval(answer: Callable[[float, float], float]) -> None:
    """Compares ``answer(save_s, between_failures_s)`` with `labkit.course.best_interval`."""
    usual = [(2.0, 3600.0), (30.0, 86400.0)]
    for save, between in drawn(
        usual, lambda random: [(random.uniform(1, 60), random.uniform(1e3, 1e5)) for _ in range(3)]
    ):
        expect(
            answer(save, between),
            right_interval(save, between),
            [
                (math.sqrt(save * between), "A failure costs half an interval on average: where is that half?"),
                (2 * save * between, "That is its square: the derivative is 0 at the root of it."),
                (between / 2, "The time that a checkpoint takes must count: so seldom, a failure costs too much."),
                (math.sqrt(2 * save / between), "That is the share of time lost, not the interval."),
            ],
            "Set the derivative of save / interval + interval / (2 * between) to zero.",
            f"a checkpoint takes {save:g} s, a failure every {between:g} s",
        )
