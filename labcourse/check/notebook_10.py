"""Checks of notebook 10: a rank's part of a batch, the mean gradient, faults, waits for a straggler, the ring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from random import Random

import torch
from torch import Tensor, nn

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, expect, formula, require, require_kind
from labcourse.one_process import FAULTS, train_with_fault
from labcourse.one_process import average_gradients as right_average
from labkit.data.batches import positions as right_positions
from labkit.simulate.clusters import ring_us as right_ring
from labtrace.tables.communication import waits as right_waits


def _other_part(random: Random) -> tuple[int, int, int, int]:
    """Batch, its size, rank and ranks, to `positions`."""
    ranks = random.randrange(1, 8)
    return random.randrange(9), ranks * random.randrange(1, 6), random.randrange(ranks), ranks


@formula(right_positions, [(0, 4, 0, 2), (0, 4, 1, 2), (3, 4, 1, 2), (5, 8, 2, 4), (2, 3, 0, 1)], _other_part)
def positions(k: int, batch_size: int, rank: int, ranks: int) -> Mistakes:
    """Compares ``answer(k, batch_size, rank, ranks)`` with `labkit.data.batches.positions`."""
    each, begin = batch_size // ranks, k * batch_size
    by_turns = range(begin + rank, begin + batch_size, ranks)
    yield range(begin, begin + batch_size), "So every rank would see the same pictures: take a part of the batch."
    yield range(begin, begin + each), "That is the first part for every rank: where does the part of this rank begin?"
    yield by_turns, "Each picture is seen once, but by turns: here the parts follow each other."
    yield (
        range((k + rank) * each, (k + rank + 1) * each),
        "Batch k begins after k whole batches, of all ranks together.",
    )
    yield (
        range(begin + rank, begin + rank + each),
        "It begins after the earlier ranks' parts: how many pictures are those?",
    )
    yield range(rank * each, (rank + 1) * each), "That is the part of the first batch: batch k begins later."
    yield None, "How many does each rank take, and which one comes first?"


@exercise(right_average)
def average_gradients(answer: Callable[[Iterable[Tensor]], None]) -> None:
    """Lets ``answer(weights)`` work on several ranks in this process. The gradients should become their means."""
    n = drawn(3, lambda random: random.randrange(3, 7))
    shapes = drawn([[2, 3], [4]], lambda random: [[random.randrange(2, 6), 3], [random.randrange(2, 6)], [2, 2, 2]])
    gradients = [[torch.randn(shape) for _ in range(n)] for shape in shapes]
    found = ask(answer, gradients, through=observe.averaged)
    for (moved, got), of_ranks in zip(found, gradients, strict=True):
        require(not moved, "it changes the weights: average the gradients, weight.grad.")
        total = torch.stack(of_ranks).sum(0)
        for rank, own in enumerate(of_ranks):
            where = f"a weight of shape {tuple(own.shape)}, rank {rank} of {n}"
            expect(
                got[rank],
                total / n,
                [
                    (own, "its gradient is as before. Are all weights averaged, and is weight.grad itself replaced?"),
                    (total, "that is the sum over the ranks: divide by their number."),
                    (own / n, "that is this rank's own gradient, divided: add up those of all ranks first."),
                    (total / n**2, "it is divided by the number of ranks twice: once is the mean."),
                    (total / 2, f"it is divided by 2, and there are {n} ranks: dist.get_world_size() knows."),
                ],
                f"{where}: the mean of the ranks' gradients is expected.",
            )


@exercise()
def in_buckets(answer: Callable[[Iterable[Tensor], int], Callable[[], None]]) -> None:
    """Lets ``answer(weights, bucket_bytes)`` average gradients on ranks in this process, and notes what it sends."""
    n = drawn(2, lambda random: random.randrange(2, 5))
    widths = drawn([4, 6, 5, 3], lambda random: [random.randrange(2, 9) for _ in range(5)])
    layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(widths)]
    whole = nn.Sequential(*layers)
    weights = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
    pictures = torch.randn(2, 2 * n, widths[0], dtype=torch.float64)  # twice: what is left must not be sent again
    bucket_bytes = drawn(250, lambda random: random.randrange(60, 400))
    total = sum(part.nbytes for pair in weights for part in pair)  # fills the last bucket exactly
    for number, size in ((1, bucket_bytes), (2, bucket_bytes), (1, total)):
        steps = ask(answer, weights, [*pictures[:number]], n, size, through=observe.sent_in_buckets)
        step, batch = steps[-1], pictures[number - 1]
        whole.zero_grad()
        whole(batch).square().mean().backward()
        _check_sends(step["backward"], step["finish"], size)
        for got, right in zip(step["gradients"], whole.parameters(), strict=True):
            mean = right.grad
            assert mean is not None
            require(got is not None, "a weight has no gradient any more: it is to have the mean.")
            require(got.shape == mean.shape, "weight.grad has another shape than its weight: part.view_as(weight).")
            require(not torch.allclose(got, n * mean), "that is the sum over the ranks: divide by their number.")
            require(torch.allclose(got, mean), "a gradient is not the mean over the ranks: has each weight its part?")


def _check_sends(backward: list[tuple[str, int]], after: list[tuple[str, int]], bucket_bytes: int) -> None:
    """Raises `WrongAnswer` unless each bucket left as soon as it was full, the last one after the backward pass."""
    sizes = [size for what, size in backward if what == "gradient"]
    right: list[tuple[str, int]] = []
    full = _full_buckets(sizes, bucket_bytes)
    for size, leaves in zip(sizes, full, strict=True):
        if leaves:  # the answer's hook comes before the check's
            right.append(("sent", leaves))
        right.append(("gradient", size))
    waiting = sum(sizes) - sum(full)
    sent = [what for what, _ in backward].count("sent")
    last = [size for what, size in after if what == "sent"]
    waits = [what for what, _ in after].count("wait")
    left = f"Gradients of {sizes} bytes came, in this order, and a bucket should have at least {bucket_bytes}"
    for holds, message in (
        (("wait", 0) not in backward, "ready waits for a bucket, so the backward pass stands still: wait in finish."),
        (
            sent > 0 or right == backward,
            "nothing leaves before the backward pass ends: `ready` has to call send(), also if a bucket is just full.",
        ),
        (backward == right, f"{left}: {sent} buckets left during the backward pass, not each as soon as it had them."),
        (last == [waiting] * (waiting > 0), "`finish` has to send what is still waiting, once, if there is anything."),
        (waits == sent + len(last), f"{sent + len(last)} buckets were sent, and finish waits for {waits}."),
    ):
        require(holds, message)


@exercise()
def find_fault(answer: Callable[[Mapping[str, float], Mapping[str, float]], int]) -> None:
    """Compares ``answer(program, right)`` with the fault that was built into a program, on drawn pictures and ranks."""
    ranks = drawn(2, lambda random: random.randrange(2, 5))
    a, b = (part.chunk(ranks) for part in torch.rand(2, 4 * ranks, 3, 16, 16))
    rows = {fault: train_with_fault(fault, a, b, "SGD") for fault in (0, *FAULTS)}
    for fault in drawn([3, 1, 4, 0, 2], lambda random: random.sample(list(rows), len(rows))):
        # Of another run, the numbers would not be equal to the last digit.
        row = {
            name: value if isinstance(value, int) else value * 1.000001 + 1e-7 for name, value in rows[fault].items()
        }
        got = ask(answer, row, rows[0])
        require_kind(got, "a number")
        what = {0: "no fault", **FAULTS}[fault]
        shown = ", ".join(f"{name} {value:.3g}" for name, value in rows[fault].items())
        require(got == fault, f"{shown}: the program has {what}, and your answer is {got}. {SYMPTOMS[fault]}")


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
    begin = 10_000
    for _ in range(random.randrange(2, 5)):
        joined = {rank: begin + random.randrange(900) for rank in clocks}
        end = max(joined.values()) + random.randrange(20, 500)
        for rank, clock in clocks.items():
            times[rank].append((joined[rank] + clock, end + clock))
        begin = end + random.randrange(100)
    return (times,)


TWO = {0: [(100, 400), (500, 900)], 1: [(1250, 1400), (1700, 1900)]}
THREE = {0: [(10, 300), (400, 500)], 1: [(0, 60), (120, 260)], 2: [(740, 1000), (1150, 1200)]}


@formula(right_waits, [(TWO,), (THREE,)], _other_collectives)
def waits(collectives: Times) -> Mistakes:
    """Compares ``answer(collectives)`` with `labtrace.tables.communication.waits`."""
    lasted = {rank: [end - begin for begin, end in own] for rank, own in collectives.items()}
    right, shortest = right_waits(collectives)[1], [min(one) for one in zip(*lasted.values(), strict=True)]
    totals = {rank: sum(own) for rank, own in lasted.items()}
    last = [max(begin for begin, _ in one) for one in zip(*collectives.values(), strict=True)]
    by_clock = {
        rank: sum(latest - begin for (begin, _), latest in zip(own, last, strict=True))
        for rank, own in collectives.items()
    }
    longest = max(right, key=lambda rank: right[rank])
    yield (longest, right), "The times are right. But who waits longest came first: for whom did they wait?"
    for mistaken, message in (
        (totals, "That is the time in the collectives, and the sending is part of it: the last to come only sends."),
        (by_clock, "Each rank has a clock of its own, so two begins cannot be compared. What can?"),
        (
            {rank: total - min(totals.values()) for rank, total in totals.items()},
            "Another rank may come last in another collective: compare the ranks in each collective by itself.",
        ),
        (
            {rank: total - len(shortest) * min(shortest) for rank, total in totals.items()},
            "Collectives send more or less: what is the shortest time in *this* collective?",
        ),
    ):
        for choose in (min, max):
            yield (choose(mistaken, key=lambda rank: mistaken[rank]), mistaken), message
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
    [([40, 35, 50, 25, 60, 5], 70), ([35, 35, 10], 70), ([40, 40], 70), ([10, 20], 100)],
    lambda random: ([random.randrange(1, 99) for _ in range(12)], random.randrange(50, 300)),
)
def sent_early(sizes: list[int], bucket_bytes: float) -> Mistakes:
    """Compares ``answer(sizes, bucket_bytes)`` with the share of the bytes that full buckets take away."""
    right, whole = _right_early(sizes, bucket_bytes), sum(sizes)
    yield right * whole, "Those are bytes: which share of all of them is it?"
    yield 1 - right, "That is the rest, which is sent afterwards."
    yield whole // bucket_bytes * bucket_bytes / whole, "A bucket leaves with whole gradients, so it may hold more."
    yield _right_early(sizes, bucket_bytes + 1), "A bucket that holds exactly `bucket_bytes` is full."
    yield sum(size for size in sizes if size >= bucket_bytes) / whole, "Small gradients leave together in a bucket."
    yield None, "Go through the gradients in order: what waits, what has left, and does a bucket begin anew?"


def _other_ring(random: Random) -> tuple[float, int, float, float]:
    return random.uniform(0, 9e6), random.randrange(2, 64), random.uniform(0, 20), random.uniform(1e9, 9e9)


@formula(right_ring, [(8e6, 4, 10.0, 1e9), (0.0, 8, 5.0, 1e9), (1e6, 2, 0.0, 2e9)], _other_ring)
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
