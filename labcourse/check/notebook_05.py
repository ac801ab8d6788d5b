"""Checks of notebook 05: host and GPU side by side, fewer passes, and steps that a replay gets right."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from labcourse.check.answers import WrongAnswer, drawn, exercise, expect, guarded, kind, require
from labcourse.check.formula import Mistakes, formula
from labcourse.check.networks import small_model
from labcourse.stand_ins import fresh_memory, replay_side_by_side
from labkit.models.cyclegan import Cycle, CycleGANStep
from labkit.variants.registry import make_step


def _right_estimate(launches: float, host_us: float, busy_us: float) -> tuple[float, float]:
    step = max(launches * host_us, busy_us)
    return step, 1 - busy_us / step


@formula(
    _right_estimate,
    [(3000, 40, 45_000), (3000, 10, 45_000), (1000, 45, 45_000), (10, 4.5, 0)],
    lambda random: (random.randrange(1, 5000), random.uniform(5, 60), random.uniform(5_000, 200_000)),
)
def estimate(launches: float, host_us: float, busy_us: float) -> Mistakes:
    """Checks ``answer(launches, host_us, busy_us)``: the microseconds of a step and the GPU's idle share."""
    host = launches * host_us
    yield (host + busy_us,), "Host and GPU do not take turns: while the GPU works, the host launches the next kernels."
    yield (host,), "The step is not over before the GPU is: take the longer of the two."
    yield (min(host, busy_us),), "The step is over when both are done: take the longer of the two."
    step, idle = _right_estimate(launches, host_us, busy_us)
    yield (step, 1 - idle), "That is the share in which the GPU works: the idle share is what is left of 1."
    yield (step, 1 - busy_us / host), "The idle share is of the step, which takes as long as the longer of the two."
    yield (
        (step, step / busy_us - 1 if busy_us else -1),
        "The idle time is a share of the whole step, not of the busy time.",
    )
    yield (step, 100 * idle), "The share is a number from 0 to 1, not percent."
    yield (step / 1e3,), "Those are milliseconds: give microseconds."
    yield None, "First the microseconds of the step, then the share of it in which the GPU has no kernel."


ON_THE_CLASS = "why_unsuited is called on the class, with the model alone: put @staticmethod, and return the reason."
WITHOUT_IDENTITY = "without an identity loss `other` is None, and so is `same`: leave that case to super().cycle."


@exercise()
def batched(answer: Any) -> None:
    """Compares a class that puts passes together with `labkit.variants.batched.Batched`.

    Args:
        answer: a class that overrides `cycle` and `judge`, and says in `why_unsuited` which model it is not for.

    Raises:
        WrongAnswer: a result differs from the baseline's, there are more passes than needed, or batch norm is let in.
    """
    seed = drawn(0, lambda random: random.randrange(2**31))
    shape = drawn([2, 3, 32, 32], lambda random: [random.randrange(1, 4), 3, *random.choices((24, 28, 36), k=2)])
    real, other, third = (torch.rand(shape, dtype=torch.float64) * 2 - 1 for _ in range(3))
    model = small_model(seed).double()
    plain = cast(CycleGANStep, make_step(model))
    right_cycle = plain.cycle(model.G_A, model.G_B, real, other)
    right_verdicts = plain.judge(model.D_A, real, third)
    sizes: dict[str, list[int]] = {name: [] for name, _ in model.named_children()}  # of the batches of each network
    for name, network in model.named_children():
        network.register_forward_pre_hook(lambda _, inputs, name=name: sizes[name].append(len(inputs[0])))
    with guarded(answer, model, real, other, third):
        its = cast(CycleGANStep, make_step(model, answer))
        cycle = its.cycle(model.G_A, model.G_B, real, other)
        require(isinstance(cycle, Cycle), f"cycle returns a Cycle(fake, back, same), not {kind(cycle)}.")
        verdicts = tuple(its.judge(model.D_A, real, third))
    n, go, back, judge = len(real), sizes["G_A"], sizes["G_B"], sizes["D_A"]
    whole = all(isinstance(one, Tensor) and len(one) == n for one in cycle)
    in_order = "chunk gives the parts in the order in which cat put them together."
    for holds, message in (
        (not _equal(cycle[0], right_cycle.same), f"fake and same are mixed up: {in_order}"),
        (whole, f"cycle: each part should have {n} pictures, as real has. chunk(2) cuts a batch into two halves."),
        (len(go) == 1, f"`go` is run {len(go)} times: put real and other together with torch.cat, and run it once."),
        (back == [n], f"`back` is run on batches of {back}: it is needed once, for the {n} fakes alone."),
        (all(map(_equal, cycle, right_cycle)), "cycle: the pictures are not the baseline's."),
        (len(verdicts) == 2, "judge returns two tensors, the verdicts on real and those on fake."),
        (not _equal(verdicts[0], right_verdicts[1]), "judge: the verdicts on real come first, then those on fake."),
        (all(map(_equal, verdicts, right_verdicts)), f"judge: the verdicts are not the baseline's: {in_order}"),
        (len(judge) == 1, f"the discriminator is run {len(judge)} times: put real and fake together as well."),
    ):
        require(holds, message)
    with guarded(answer, model, if_it_fails=ON_THE_CLASS):
        reason, reasons = answer.why_unsuited(model), {}
        for name, _ in model.named_children():
            unsuited = small_model(seed)
            setattr(unsuited, name, nn.Sequential(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))))
            reasons[name] = answer.why_unsuited(unsuited.eval())
    for name, why in reasons.items():
        let_in = f"why_unsuited returns {why!r} for a model with batch norm in {name}"
        require(isinstance(why, str) and why.strip() != "", f"{let_in}: a sentence with the reason is due.")
    none = "None is due, since instance norm takes each picture's own mean."
    require(reason is None, f"why_unsuited returns {reason!r} for a model without batch norm: {none}")
    for weight in (0.5, 0.0):
        theirs, model = (small_model(seed, lambda_identity=weight).double() for _ in range(2))
        pictures: list[list[int]] = [[], []]  # that the generators translate, one batch after the other
        for noted, one in zip(pictures, (theirs, model), strict=True):
            for network in (one.G_A, one.G_B):
                network.register_forward_pre_hook(lambda _, inputs, noted=noted: noted.append(len(inputs[0])))
        step = make_step(theirs)
        right = [step(real, other) for _ in range(2)][-1]  # the second step's losses follow from gradients
        with guarded(answer, model, real, other, if_it_fails=WITHOUT_IDENTITY):
            step = make_step(model, answer)
            losses = [step(real, other) for _ in range(2)][-1]
        wrong = [name for name, loss in right.items() if not torch.allclose(losses[name], loss, rtol=1e-9)]
        where = "" if weight else " without an identity loss, where `other` is None,"
        told = f"after one update{where} {', '.join(wrong)} differ from the baseline's: perhaps a gradient is cut off."
        require(not wrong, told)
        more = (
            f"in two steps{where} generators translate {sum(pictures[1])} pictures, and {sum(pictures[0])} are enough."
        )
        require(sum(pictures[1]) <= sum(pictures[0]), more)


def _equal(a: object, b: Tensor | None) -> bool:
    return isinstance(a, Tensor) and b is not None and a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def clips(a: Tensor, memory: SimpleNamespace) -> Tensor:
    """A step of `repaired` as it should be, like the two below."""
    return torch.where(a.norm() > 2, a * 2 / a.norm(), a)


def decays(a: Tensor, memory: SimpleNamespace) -> Tensor:  # noqa: D103
    return memory.rate_tensor.mul_(0.5) * a


def adds_up(a: Tensor, memory: SimpleNamespace) -> Tensor:  # noqa: D103
    return memory.total.add_(a).clone()


REPAIRS = (  # a step as it should be, and what to do if a replay of the answer is wrong
    ("clips", clips, "The choice between two results has to be an operation on tensors, such as torch.where."),
    ("decays", decays, "A number stays as it was recorded: change memory.rate_tensor in place."),
    ("adds_up", adds_up, "A new tensor leaves the recording with the old one: change memory.total in place."),
    ("draws", None, "Python runs only while the tape records: draw with torch, which draws again in each replay."),
)


@exercise()
def repaired(*answers: Callable[[Tensor, SimpleNamespace], Tensor]) -> None:
    """Checks the steps `clips`, `decays`, `adds_up` and `draws` after they were rewritten for replays."""
    random = drawn(Random(0), lambda random: random)
    # That of length 2.3 has no value above 2, and that of 1.8 a sum above it.
    lengths = random.sample([1.1, 1.8, 2.3, 9.0] * 4, 16)
    directions = [[random.choice((-1, 1)) * random.uniform(0.8, 1.2) for _ in range(4)] for _ in lengths]
    ones = torch.tensor(directions).view(-1, 2, 2)
    inputs = [length * one / one.norm() for length, one in zip(lengths, ones, strict=True)]
    for (name, right, advice), answer in zip(REPAIRS, answers, strict=True):
        given = [*inputs, 0 * inputs[0]] if right else inputs
        with guarded(answer, given):
            called, replayed = replay_side_by_side(answer, given)
            memory = fresh_memory(given[0])
            results = [(result := answer(a, memory), result.clone()) for a in given]
        if right is None:
            factors = torch.stack([result / a for result, a in zip(called, given, strict=True)]).flatten(1)
            one = torch.allclose(factors, factors[:, :1], atol=1e-6) and bool(((0 <= factors) & (factors <= 1)).all())
            require(one, f"{name}: the result is not a times one number from 0 to 1.")
            apart = factors[:, 0].sort().values.diff()
            require(bool((apart > 1e-6).all()), f"{name}: two calls draw the same number.")
        else:
            wanted = torch.stack(replay_side_by_side(right, given)[0])
            expect(torch.stack(called), wanted, [], f"{name}: called without a tape, it should do what it did before.")
        if isinstance(replayed, str):
            raise WrongAnswer(f"{name}: its recording is refused, the host asks for a value. {advice}")
        stays = all(torch.equal(result, before) for result, before in results)
        require(stays, f"{name}: a later call changes an earlier result: return a new tensor, such as a clone.")
        right_each_time = all(torch.allclose(a, b) for a, b in zip(called, replayed, strict=True))
        require(right_each_time, f"{name}: a replay is stale. {advice}")


CALLS = ("the first call", "the second call", "the same input again", "a call after another shape")


@exercise()
def captured(answer: type) -> None:
    """Checks a class that records a body once, and replays it for each new input."""
    rows, columns = shape = drawn([2, 3], lambda random: random.sample(range(2, 8), 2))
    less, times = drawn((1.0, 2.0), lambda random: (random.uniform(0.5, 2.5), random.uniform(1.5, 4)))
    example = torch.full(shape, 5.0, dtype=drawn(torch.float32, lambda _: torch.float64))
    first = torch.arange(rows * columns).reshape(shape).to(example)
    inputs = [first, first + 1, first + 1]
    others = [first[:1], first[:, :1], first.reshape(columns, rows), first[None], first[..., None]]
    bodies, results, errors, total = list[Tensor](), list[Any](), list[str](), torch.zeros(())

    def body(a: Tensor) -> Tensor:
        bodies.append(a)
        return torch.relu(a - less) * times + total.add_(1)

    def call(a: Tensor) -> Any:
        result = capture(a)
        results.append(result.clone() if isinstance(result, Tensor) else result)
        return result

    with guarded(answer, inputs, others):
        given = example.clone()
        capture = answer(body, given)
        recorded = len(bodies)
        answer(torch.neg, given)  # another one, which is to share nothing with the first
        kept, *_ = map(call, inputs)
        for other in others:
            try:
                capture(other)
                errors.append("")
            except Exception as error:
                errors.append(repr(error))
        call(inputs[1])
    for holds, message in (
        (len(bodies) == 1, f"after all calls the body has run {len(bodies)} times: record it once, in __init__."),
        (recorded == 1, "__init__ does not run the body: record it there, for the example."),
        (torch.equal(results[0], kept), "a later call has changed the first result. Return a clone."),
        (torch.equal(given, example), "the example that was handed to you has changed: keep a clone of it."),
    ):
        require(holds, message)
    for other, came in zip(others, errors, strict=True):
        repeats = "passes" if other.numel() == first.numel() else "passes, since copy_ repeats it to fit"
        done = f"raises {came}" if came else repeats
        where = f"an input of shape {tuple(other.shape)}, where ({rows}, {columns}) was recorded,"
        require(came.startswith("ValueError("), f"{where} {done}: compare the shapes first, and raise a ValueError.")
    old = "the result is the example's: copy the new input into its memory. To name another tensor moves nothing."
    order = "the result is not the body's, which counts its runs. Copy each input, and then replay once."
    for runs, got, a, when in zip(range(2, 6), results, [*inputs, inputs[1]], CALLS, strict=True):
        stale = (example - less) * times + runs
        expect(got, torch.relu(a - less) * times + runs, [(stale, f"{when}: {old}")], f"{when}: {order}")
        require(got.dtype == a.dtype, f"{when}: the result is {got.dtype}, and the input is {a.dtype}.")
