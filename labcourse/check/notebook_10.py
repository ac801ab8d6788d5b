"""Checks of notebook 10: a rank's part of a batch, the mean gradient, faults, waits for a straggler, the ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import pairwise
from random import Random
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcourse.check.answers import ask, drawn, exercise, expect, guarded, require, require_kind
from labcourse.check.formula import Mistakes, formula
from labcourse.check.side_effects import FROZEN
from labcourse.one_process import FAULTS, of_each, of_rank, several_ranks, train_with_fault
from labkit.data.batches import positions as right_positions
from labkit.simulate.clusters import ring_us as right_ring


def _other_part(random: Random) -> tuple[int, int, int, int]:
    """Batch, its size, rank and ranks, to `positions`."""
    ranks = random.randrange(1, 8)
    return random.randrange(9), ranks * random.randrange(1, 6), random.randrange(ranks), ranks


ALL_RANKS = "batch_size counts the pictures of all ranks together: each takes batch_size // ranks of them."


@formula(right_positions, [(3, 4, 1, 2), (5, 12, 2, 4), (0, 4, 0, 2)], _other_part)
def positions(k: int, batch_size: int, rank: int, ranks: int) -> Mistakes:
    """Compares ``answer(k, batch_size, rank, ranks)`` with `labkit.data.batches.positions`."""
    each, begin = batch_size // ranks, k * batch_size
    by_turns = range(begin + rank, begin + batch_size, ranks)
    yield range(begin, begin + batch_size), "So every rank would see the same pictures: take a part of the batch."
    yield range(begin, begin + each), "That is the first part for every rank: where does the part of this rank begin?"
    yield by_turns, "Each picture is seen once, but by turns: here the parts follow each other."
    as_batches, one_on = range((k + rank) * each, (k + rank + 1) * each), range(begin + rank, begin + rank + each)
    yield as_batches, "Batch k begins after k whole batches, of all ranks together."
    yield one_on, "It begins after the earlier ranks' parts: how many pictures are those?"
    yield range(rank * each, (rank + 1) * each), "That is the part of the first batch: batch k begins later."
    yield range((k * ranks + rank) * batch_size, (k * ranks + rank + 1) * batch_size), ALL_RANKS
    yield range(begin + rank * each, each), "range takes where it ends, and not how many there are."
    yield None, "How many does each rank take, and which one comes first?"


@exercise()
def average_gradients(answer: Callable[[Iterable[Tensor]], None]) -> None:
    """Lets ``answer(weights)`` work on several ranks in this process. The gradients should become their means."""
    for n in drawn([2, 5], lambda random: random.sample(range(2, 7), 2)):
        shapes = drawn([[2, 3], [4]], lambda random: [[random.randrange(2, 6), 3], [random.randrange(2, 6)]])
        gradients = [[torch.randn(shape) for _ in range(n)] for shape in shapes]
        use = "On tensors of several ranks use dist.all_reduce(weight.grad)."
        with guarded(answer, if_it_fails=use), several_ranks(n):
            weights = [of_each([torch.ones(one.shape) for one in of_ranks]).requires_grad_() for of_ranks in gradients]
            for weight, of_ranks in zip(weights, gradients, strict=True):
                weight.grad = of_each([one.clone() for one in of_ranks])
            answer(iter(weights))  # as model.parameters() is
        for weight, of_ranks in zip(weights, gradients, strict=True):
            moved = any(bool((of_rank(weight.detach(), rank) != 1).any()) for rank in range(n))
            require(not moved, "it changes the weights: average the gradients, weight.grad.")
            require(weight.requires_grad, FROZEN)
            total = torch.stack(of_ranks).sum(0)
            for rank, own in enumerate(of_ranks):
                expect(
                    of_rank(cast(Tensor, weight.grad), rank),
                    total / n,
                    [
                        (own, "It is as before: are all weights averaged, and is weight.grad itself replaced?"),
                        (total, "That is the sum over the ranks: divide by their number."),
                        (own / n, "That is this rank's own gradient, divided: add up those of all ranks first."),
                        (total / n**2, "It is divided by the number of ranks twice: once is the mean."),
                    ],
                    "The mean over the ranks is expected: dist.get_world_size() knows their number.",
                    f"the gradient of a weight of shape {tuple(own.shape)}, rank {rank} of {n}",
                )


Sends = list[tuple[str, int]]  # "gradient" (it is complete), "sent" (a bucket) or "wait", and bytes


def _sent(answer: Callable, network: nn.Module, batches: Tensor, ranks: int, bucket_bytes: int) -> tuple[Sends, Sends]:
    """What happens in the last of some steps on several ranks: during the backward pass, and in `finish`."""
    noted: Sends = []

    class Noted:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor, self.sum = tensor, tensor.clone()
            tensor.fill_(math.nan)  # until somebody waits

        def wait(self) -> None:
            noted.append(("wait", 0))
            original(self.sum)
            self.tensor.copy_(self.sum)

    def all_reduce(tensor: Tensor, **options: Any) -> Any:
        noted.append(("sent", tensor.nbytes))
        return Noted(tensor) if options.get("async_op") else original(tensor, **options)

    original = dist.all_reduce
    finish = answer([*network.parameters()], bucket_bytes)
    require(callable(finish), "in_buckets returns the function `finish`, without calling it.")
    for weight in network.parameters():  # after the answer's own hooks, which so come first
        weight.register_post_accumulate_grad_hook(lambda weight: noted.append(("gradient", weight.nbytes)))
    for batch in batches:
        noted.clear()
        network.zero_grad()
        with several_ranks(ranks), patch.object(dist, "all_reduce", all_reduce):
            network(of_each(batch.chunk(ranks))).square().mean().backward()
            of_backward = len(noted)
            finish()
    return noted[:of_backward], noted[of_backward:]


@exercise()
def in_buckets(answer: Callable[[Iterable[Tensor], int], Callable[[], None]]) -> None:
    """Lets ``answer(weights, bucket_bytes)`` average gradients on ranks in this process, and notes what it sends."""
    widths = drawn([4, 6, 5, 3], lambda random: [random.randrange(2, 9) for _ in range(5)])
    whole = nn.Sequential(*(nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(widths)))
    bucket_bytes = drawn(250, lambda random: random.randrange(60, 400))
    total = sum(weight.nbytes for weight in whole.parameters())  # fills the last bucket exactly
    ranks = drawn([2, 3, 4], lambda random: random.sample(range(2, 5), 3))
    # Two steps: what is left of the first must not be sent again.
    for n, number, size in zip(ranks, (1, 2, 1), (bucket_bytes, bucket_bytes, total), strict=True):
        batches = torch.randn(number, 2 * n, widths[0], dtype=torch.float64)
        network = deepcopy(whole)
        with guarded(
            answer, network, batches, if_it_fails="If nothing waits at the end, `finish` has nothing to send."
        ):
            backward, after = _sent(answer, network, batches, n, size)
        whole.zero_grad()
        whole(batches[-1]).square().mean().backward()
        _check_sends(backward, after, size)
        for weight, right in zip(network.parameters(), whole.parameters(), strict=True):
            got, mean = (of_rank(cast(Tensor, one.grad), 0) for one in (weight, right))
            where = f"the gradient of a weight of shape {tuple(mean.shape)}, on {n} ranks"
            summed = n * mean, "That is the sum over the ranks: divide by their number."
            expect(got, mean, [summed], "It is not the mean over the ranks: has each weight its part?", where)


def _check_sends(backward: Sends, after: Sends, bucket_bytes: int) -> None:
    """Raises `WrongAnswer` unless each bucket left as soon as it was full, the last one after the backward pass."""
    sizes = [size for what, size in backward if what == "gradient"]
    full = _full_buckets(sizes, bucket_bytes)
    right = []  # the answer's hook comes before the check's
    for size, leaves in zip(sizes, full, strict=True):
        right += [("sent", leaves)] * (leaves > 0) + [("gradient", size)]
    waiting = sum(sizes) - sum(full)
    sent = [size for what, size in backward if what == "sent"]
    last = [size for what, size in after if what == "sent"]
    waits = [what for what, _ in after].count("wait")
    told = f"Gradients of {sizes} bytes came, in this order, and a bucket should have at least {bucket_bytes}"
    require(("wait", 0) not in backward, "ready waits for a bucket, so the backward pass stands still: wait in finish.")
    early = "nothing leaves before the backward pass ends: `ready` adds up all that wait, and calls send() at >= bytes."
    require(bool(sent) or right == backward, early)
    require(backward == right, f"{told}: in the backward pass {sent} bytes left, not each as soon as it had them.")
    finish = f"`finish` has to send what is still waiting, once, if there is anything: {waiting} bytes, not {last}."
    require(last == [waiting] * (waiting > 0), finish)
    require(waits == len(sent + last), f"{len(sent + last)} buckets were sent, and finish waits for {waits}.")


@exercise()
def find_fault(answer: Callable[[Mapping[str, float], Mapping[str, float]], int]) -> None:
    """Compares ``answer(program, right)`` with the fault that was built into a program, on drawn pictures and ranks."""
    for ranks, light in ((2, 1.0), (drawn(4, lambda random: random.randrange(3, 5)), 0.3)):
        fading = torch.linspace(1, 0.3, 3 * ranks).view(-1, 1, 1, 1)  # rank 0 has the brightest pictures
        a, b = (part.chunk(ranks) for part in light * fading * torch.rand(2, 3 * ranks, 3, 16, 16))
        rows = {fault: train_with_fault(fault, a, b, "SGD") for fault in (0, *FAULTS)}
        for fault in drawn([3, 1, 4, 0, 2], lambda random: random.sample(range(5), 5)):
            row = {  # of another run: its numbers would not be equal to the last digit
                name: value if isinstance(value, int) else value * 1.000001 + 1e-7
                for name, value in rows[fault].items()
            }
            got = ask(answer, row, rows[0])
            require_kind(got, "a number")
            what = {0: "no fault", **FAULTS}[fault]
            shown = ", ".join(f"{name} {value:.3g}" for name, value in row.items())
            told = f"{ranks} ranks, {shown}: the program has {what}, and your answer is {got}. {SYMPTOMS[fault]}"
            require(got == fault, told)


SYMPTOMS = {  # of the fault that was not found: what shows it
    0: "Compare with the right program's row: it has the same numbers, rounding apart.",
    1: "With a sum SGD moves the weights further than the right program: nearly as many times as there are ranks.",
    2: "With gradients that were divided twice SGD hardly moves the weights.",
    3: "If all ranks take the same pictures, there are fewer different ones in a step. How many, depends on the ranks.",
    4: "If the ranks begin differently, their weights differ in the end. Ask for this first: the rest is chance then.",
}


Times = dict[int, list[tuple[float, float]]]


def _other_collectives(random: Random) -> tuple[Times]:
    """Of up to five ranks, each with a clock of its own, and up to four collectives."""
    clocks = {rank: random.randrange(-9000, 9000) for rank in random.sample(range(8), random.randrange(2, 6))}
    times: Times = {rank: [] for rank in clocks}
    begin = 10_000.0
    for _ in range(random.randrange(2, 5)):
        joined = {rank: begin + 64.5 * random.randrange(14) + rank for rank in clocks}  # so no two ranks wait as long
        end = max(joined.values()) + random.randrange(20, 500)
        for rank, clock in clocks.items():
            times[rank].append((joined[rank] + clock, end + clock))
        begin = end + random.randrange(100)
    return (times,)


TWO = {4: [(100, 400), (500, 900)], 7: [(1250, 1400), (1700, 1900)]}
# Rank 0 waits least, and is never the last. Rank 2 is the last most often, and for rank 1 the others wait longest.
THREE = {
    0: [(190, 220), (380, 560), (850, 900)],
    1: [(1000, 1220), (1530, 1560), (1810, 1900)],
    2: [(100, 120), (220, 460), (770, 800)],
}


def right_waits(collectives: Times) -> tuple[int, dict[int, float]]:
    """The rank that the others waited for, and how long each rank waited in its collectives, in microseconds.

    All ranks leave a collective together. So the rank that is in it for the shortest time came last, and did not wait.
    """
    lasted = {rank: [end - begin for begin, end in own] for rank, own in collectives.items()}
    sending = sum(min(one) for one in zip(*lasted.values(), strict=True))
    waited = {rank: sum(own) - sending for rank, own in lasted.items()}
    return min(waited, key=lambda rank: waited[rank]), waited


@formula(right_waits, [(THREE,), (TWO,)], _other_collectives)
def waits(collectives: Times) -> Mistakes:
    """Compares ``answer(collectives)`` with `right_waits`."""
    lasted = {rank: [end - begin for begin, end in own] for rank, own in collectives.items()}
    shortest = [min(one) for one in zip(*lasted.values(), strict=True)]
    last = [max(begin for begin, _ in one) for one in zip(*collectives.values(), strict=True)]
    totals = {rank: sum(own) for rank, own in lasted.items()}
    begins = {rank: -sum(begin for begin, _ in own) for rank, own in collectives.items()}
    for of_ranks, less, message in (
        (totals, sum(shortest), "The times are right. The rank that itself waited least is the straggler."),
        (totals, 0, "That is the time in the collectives, and sending is part of it: the last to come only sends."),
        (begins, -sum(last), "Each rank has a clock of its own, so two begins cannot be compared. What can?"),
        (totals, min(totals.values()), "That is as if one rank came last each time: take each collective by itself."),
        (totals, len(shortest) * min(shortest), "What is the shortest time in *this* collective? Some send more."),
    ):
        mistaken = {rank: us - less for rank, us in of_ranks.items()}
        yield lambda got, _, mistaken=mistaken: got[1] == mistaken, message
    yield None, "All ranks leave a collective together: who was in it the shortest time, and how much longer was each?"


def _full_buckets(sizes: list[int], bucket_bytes: float) -> list[int]:
    """The bytes of the bucket that leaves with each gradient, 0 if none does."""
    leaving, waiting = [], 0
    for size in sizes:
        waiting += size
        leaving.append(waiting if waiting >= bucket_bytes else 0)
        waiting -= leaving[-1]
    return leaving


def _right_early(sizes: list[int], bucket_bytes: float) -> float:
    return sum(_full_buckets(sizes, bucket_bytes)) / sum(sizes)


@formula(
    _right_early,
    [([45, 20, 5, 45, 55, 41, 10], 70), ([10, 75, 30], 70.0), ([40, 40], 70), ([10, 20], 100)],
    lambda random: ([random.randrange(1, 99) for _ in range(12)], random.randrange(50, 300)),
)
def sent_early(sizes: list[int], bucket_bytes: float) -> Mistakes:
    """Compares ``answer(sizes, bucket_bytes)`` with the share of the bytes that full buckets take away."""
    right, whole = _right_early(sizes, bucket_bytes), sum(sizes)
    yield right * whole, "Those are bytes: which share of all of them is it?"
    gone = next((i for i in range(len(sizes), 0, -1) if math.isclose(sum(sizes[:i]), right * whole)), 0)
    yield gone / len(sizes), "That is a share of the gradients by number: large ones have more bytes."
    yield 1 - right, "That is the rest, which is sent afterwards."
    yield whole // bucket_bytes * bucket_bytes / whole, "A bucket leaves with whole gradients, so it may hold more."
    yield _right_early(sizes, bucket_bytes + 1), "A bucket that holds exactly `bucket_bytes` is full."
    yield sum(size for size in sizes if size >= bucket_bytes) / whole, "Small gradients leave together in a bucket."
    waiting = sent = 0
    for size in sizes:
        if waiting and waiting + size > bucket_bytes:
            sent, waiting = sent + waiting, 0
        waiting += size
    yield sent / whole, "A bucket leaves with the gradient that fills it, and not before that one."
    yield None, "Go through the gradients in order: what waits, what has left, and does a bucket begin anew?"


def _other_ring(random: Random) -> tuple[float, int, float, float]:
    return random.uniform(0, 9e6), random.randrange(2, 64), random.uniform(0, 20), random.uniform(1e9, 9e9)


@formula(right_ring, [(8e6, 4, 10.0, 1e9), (0.0, 8, 5.0, 1e9), (1e6, 1, 5.0, 2e9)], _other_ring)
def ring_us(size: float, ranks: int, latency_us: float, bytes_per_s: float) -> Mistakes:
    """Compares ``answer(size, ranks, latency_us, bytes_per_s)`` with `labkit.simulate.ring_us`."""
    sending, rounds = 1e6 * size / bytes_per_s, 2 * (ranks - 1)
    message = latency_us + sending / ranks
    yield (ranks - 1) * message, "After so many rounds a rank has the sum of one part only: the sums must travel, too."
    yield 2 * ranks * message, "With n ranks n - 1 rounds are enough, twice."
    yield rounds * (latency_us + sending), "In each round a rank sends one of n parts."
    yield rounds * sending / ranks, "Every message has its latency, too."
    yield latency_us + rounds * sending / ranks, "There is a message in every round."
    yield rounds * (latency_us + sending / ranks / 1e6), "Bytes over bandwidth are seconds."
    yield None, "How many rounds are there, and how long is one?"
