"""Checks of notebook 10: a rank's part of a batch, the mean gradient, faults, the ring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

import torch
from torch import Tensor

from labkit.course.check.answers import a_seed, cases, drawn, exercise, expect, failing, require, require_kind
from labkit.course.one_process import FAULTS, of_each, of_rank, several_ranks, train_with_fault
from labkit.course.one_process import average_gradients as right_average
from labkit.data.batches import positions as right_positions
from labkit.simulate.communication import ring_us as right_ring


def _other_part(random: Random) -> tuple[int, int, int, int]:
    """Batch, its size, rank and ranks, to `positions`."""
    ranks = random.randrange(1, 8)
    return random.randrange(9), ranks * random.randrange(1, 6), random.randrange(ranks), ranks


@exercise(right_positions)
def positions(answer: Callable[[int, int, int, int], range]) -> None:
    """Compares ``answer(k, batch_size, rank, ranks)`` with `labkit.data.batches.positions`."""
    for case in cases([(0, 4, 0, 2), (0, 4, 1, 2), (3, 4, 1, 2), (5, 8, 2, 4), (2, 3, 0, 1)], _other_part):
        k, batch_size, rank, ranks = case
        got, each, begin = answer(*case), batch_size // ranks, k * batch_size
        require_kind(got, "a range")

        def part(begin: int, n: int = each) -> str:
            return str([*range(begin, begin + n)])

        expect(
            str([*got]),
            str([*right_positions(*case)]),
            [
                (
                    part(begin, batch_size),
                    "That is the whole batch: every rank would see the same pictures. Take a part of it.",
                ),
                (
                    part(begin),
                    "So every rank takes the first part of the batch: where does the part of this rank begin?",
                ),
                (
                    str([*range(begin + rank, begin + batch_size, ranks)]),
                    "Each picture is seen once, but by turns: here the parts follow each other.",
                ),
                (part((k + rank) * each), "Batch k begins after k whole batches, of all ranks together."),
                (
                    part(begin + rank),
                    "The part begins after the parts of the ranks before it: how many pictures are those?",
                ),
                (part(rank * each), "That is the part of the first batch: batch k begins later."),
            ],
            "How many does each rank take, and which one comes first?",
            f"batch {k} of {batch_size}, rank {rank} of {ranks}",
        )


@exercise(right_average)
def average_gradients(answer: Callable[[Iterable[Tensor]], None]) -> None:
    """Lets ``answer(weights)`` work on three ranks in this process. The gradients should become their means."""
    random = torch.Generator().manual_seed(drawn(0, a_seed))
    n = drawn(3, lambda random: random.randrange(3, 7))
    shapes = drawn([[2, 3], [4]], lambda random: [[random.randrange(2, 6), 3], [random.randrange(2, 6)], [2, 2, 2]])
    gradients = [[torch.randn(shape, generator=random) for _ in range(n)] for shape in shapes]
    before = [torch.ones(shape) for shape in shapes]
    with several_ranks(n):
        weights = []
        for value, of_ranks in zip(before, gradients, strict=True):
            weights.append(of_each([value.clone() for _ in range(n)]).requires_grad_())
            weights[-1].grad = of_each([gradient.clone() for gradient in of_ranks])
        with failing(RuntimeError, "it fails on tensors of several ranks: use dist.all_reduce(weight.grad)."):
            answer(weights)
    for weight, value, of_ranks in zip(weights, before, gradients, strict=True):
        moved = any(not torch.equal(of_rank(weight.detach(), rank), value) for rank in range(n))
        require(not moved, "it changes the weights: average the gradients, weight.grad.")
        require(weight.grad is not None, "afterwards there is no gradient: the optimiser needs it.")
        assert weight.grad is not None
        total = torch.stack(of_ranks).sum(0)
        for rank in range(n):
            got, own = of_rank(weight.grad, rank), of_ranks[rank]
            where = f"a weight of shape {tuple(own.shape)}, rank {rank} of {n}"
            mistakes = [
                (own, "its gradient is as before. Are all weights averaged, and is weight.grad itself replaced?"),
                (total, "that is the sum over the ranks: divide by their number."),
                (own / n, "that is this rank's own gradient, divided: add up those of all ranks first."),
                (total / n**2, "it is divided by the number of ranks twice: once is the mean."),
                (total / 2, f"it is divided by 2, and there are {n} ranks: dist.get_world_size() knows."),
            ]
            expect(got, total / n, mistakes, f"{where}: the mean of the ranks' gradients is expected.")


@exercise()
def find_fault(answer: Callable[[Mapping[str, float], Mapping[str, float]], int]) -> None:
    """Compares ``answer(program, right)`` with the fault that was built into a program, on drawn pictures and ranks."""
    ranks, seed = drawn((2, 0), lambda random: (random.randrange(2, 5), a_seed(random)))
    pictures = torch.rand(2, 4 * ranks, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    a, b = (part.chunk(ranks) for part in pictures)
    rows = {fault: train_with_fault(fault, a, b, "SGD") for fault in (0, *FAULTS)}
    for fault in drawn([3, 1, 4, 0, 2], lambda random: random.sample(list(rows), len(rows))):
        got = answer(dict(rows[fault]), dict(rows[0]))
        require_kind(got, "a number")
        require(got in rows, f"{got!r} is no number from course.FAULTS, and not 0.")
        what = {0: "no fault", **FAULTS}[fault]
        shown = ", ".join(f"{name} {value:.3g}" for name, value in rows[fault].items())
        require(got == fault, f"{shown}: the program has {what}, and your answer is {got}. {SYMPTOMS[fault]}")


SYMPTOMS = {  # of the fault that was not found: what shows it
    0: "Compare with the right program's row: it has the same numbers.",
    1: "With a sum SGD moves the weights further than the right program does: nearly as many times as there are ranks.",
    2: "With gradients that were divided twice SGD hardly moves the weights.",
    3: "If all ranks take the same pictures, there are fewer different ones in a step. How many, depends on the ranks.",
    4: "If the ranks begin differently, their weights differ in the end. Ask for this first: the rest is chance then.",
}


def _other_ring(random: Random) -> tuple[float, int, float, float]:
    """Bytes, ranks, microseconds of latency and bytes per second, to `ring_us`."""
    return random.uniform(0, 9e6), random.randrange(2, 64), random.uniform(0, 20), random.uniform(1e9, 9e9)


@exercise(right_ring)
def ring_us(answer: Callable[[float, int, float, float], float]) -> None:
    """Compares ``answer(size, ranks, latency_us, bytes_per_s)`` with `labkit.simulate.ring_us`."""
    for case in cases([(8e6, 4, 10.0, 1e9), (0.0, 8, 5.0, 1e9), (1e6, 2, 0.0, 2e9)], _other_ring):
        size, ranks, latency_us, bytes_per_s = case
        right, sending = right_ring(*case), 1e6 * size / bytes_per_s
        one_way = (ranks - 1) * (latency_us + sending / ranks)
        expect(
            answer(*case),
            right,
            [
                (one_way, "After so many rounds each rank has the sum of one part only: the sums must travel, too."),
                (2 * ranks * (latency_us + sending / ranks), "With n ranks n - 1 rounds are enough, twice."),
                (2 * (ranks - 1) * (latency_us + sending), "In each round a rank sends one of n parts."),
                (2 * (ranks - 1) * sending / ranks, "Every message has its latency, too."),
                (latency_us + 2 * (ranks - 1) * sending / ranks, "There is a message in every round."),
                (right / 1e6, "That is seconds: microseconds are asked for."),
                (2 * (ranks - 1) * (latency_us + sending / ranks / 1e6), "Bytes over bandwidth are seconds."),
            ],
            "How many rounds are there, and how long is one?",
            f"{size:g} bytes, {ranks} ranks, {latency_us:g} us, {bytes_per_s:g} bytes/s",
        )
