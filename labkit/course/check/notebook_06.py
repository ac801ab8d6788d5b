"""Checks of notebook 06: floats by hand, gradients in float16, one scaler for two optimisers, memory, accumulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from unittest.mock import Mock

import torch
from torch import Tensor, nn

from labkit.course.check.answers import a_seed, cases, drawn, exercise, expect, require, require_each
from labkit.course.solutions import kept_bytes as right_kept
from labkit.course.solutions import limits as right_limits
from labkit.course.solutions import rounding_outcomes as right_outcomes
from labkit.models.cyclegan import CycleGAN
from labkit.models.step import Step
from labkit.variants.registry import SPEEDUPS, make_step

SCALE = 256.0  # of the losses, in the check of `update`


def _other_format(random: Random) -> tuple[str, tuple[int, int]]:
    """A format of floats that Python's own can hold: its name, bits of exponent and mantissa, to `limits`."""
    exponent, mantissa = random.randrange(3, 10), random.randrange(2, 20)
    return f"a float of {1 + exponent + mantissa} bits", (exponent, mantissa)


@exercise(right_limits)
def limits(answer: Callable[[int, int], Mapping[str, float]]) -> None:
    """Compares ``answer(exponent_bits, mantissa_bits)`` with `labkit.course.limits`."""
    for name, bits in cases([("float16", (5, 10)), ("bfloat16", (8, 7))], _other_format):
        right = right_limits(*bits)
        half, one_bit = {"eps": right["eps"] / 2}, {"max": right["max"] / (2 - right["eps"])}
        expect(
            answer(*bits),
            right,
            [
                (half, "The 1 in front of the point is not stored: all mantissa bits come after it."),
                (lambda got, right: got["max"] >= 1.5 * right["max"], "The highest exponent is kept for inf and nan."),
                ({"tiny": right["tiny"] / 2}, "The lowest exponent of all is kept for zero and subnormals."),
                (one_bit, "With the largest exponent, all bits of the mantissa can be 1: nearly 2 times that."),
            ],
            f"Right is {', '.join(f'{limit} {value:g}' for limit, value in right.items())}.",
            f"{name}, with {bits[0]} bits of exponent and {bits[1]} of mantissa",
        )


def _any_gradients(random: Random) -> list[float]:
    """Gradients of all sizes, and two zeros, to `rounding_outcomes`."""
    sizes = [10 ** random.uniform(-9, 1) for _ in range(random.randrange(10, 30))]
    return [0.0, 0.0, *(random.choice((-1, 1)) * size for size in sizes)]


@exercise(right_outcomes)
def rounding_outcomes(answer: Callable[[Tensor, float], Mapping[str, float]]) -> None:
    """Compares ``answer(gradients, scale)`` with `labkit.course.rounding_outcomes`."""
    gradients = torch.tensor(drawn([0.0, 0.0, 1e-9, -3e-8, 2e-7, 1e-6, -5e-5, 1e-3, 0.5, -2.0], _any_gradients))
    n = len(gradients) - 2
    late = {"flushed": right_outcomes(gradients, 1.0)["flushed"]}
    for scale in cases([1.0, 2.0**10, 2.0**17], lambda random: 2.0 ** random.randrange(20)):
        given = gradients.clone()
        got, right = answer(given, scale), right_outcomes(gradients, scale)
        require(torch.equal(given, gradients), "the gradients you were given were changed: make new tensors.")
        with_zeros, below_tiny = (2 + n * right["flushed"]) / (n + 2), right["flushed"] + right["subnormal"]
        told = ", ".join(f"{outcome} {share:.3g}" for outcome, share in right.items())
        nearest = f"Flushed are those of the {n} that `.half()` rounds, to the nearest, to 0: a share from 0 to 1."
        expect(
            got,
            right,
            [
                ({"flushed": with_zeros}, "A gradient that was zero before is not flushed: leave the zeros out first."),
                ({"flushed": below_tiny}, "A value below `finfo.tiny` need not be zero: ask which are 0 in float16."),
                (late, "Scale first, while they are in float32: what float16 has flushed, no scale brings back."),
                (lambda got, right: not math.isclose(got["flushed"], right["flushed"]), nearest),
                (lambda got, right: got["overflowed"] != right["overflowed"], "Is -inf counted as well? `isinf` does."),
            ],
            "Subnormal are those below `finfo.tiny` in size that are not 0; mind the sign.",
            f"{n} gradients and 2 zeros, scale {scale:g}, where right is {told}",
        )


def _any_two(random: Random) -> dict[str, Tensor]:
    """Gradients of two players to `update`: the generators' is longer than 1, the discriminators' shorter."""
    angles = torch.tensor([random.uniform(0.2, 1.3) for _ in range(2)])
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    return {"generators": random.uniform(2, 9) * directions[0], "discriminators": 0.6 * directions[1]}


@exercise()
def update(answer: Callable[[torch.amp.GradScaler, Mapping[str, torch.optim.Optimizer], float], None]) -> None:
    """Checks one ``answer(scaler, optimizers, max_norm)``: an update of two players under one scaler."""
    usual = {"generators": torch.tensor([3.0, 4.0]), "discriminators": torch.tensor([0.0, 0.5])}
    gradients = drawn(usual, _any_two)
    norm_of_both = torch.cat([*gradients.values()]).norm()
    leaves_out = "they must not take a step with it. scaler.step(optimizer) leaves that step out by itself."
    once = "Call it once, after both players: it changes the scale that the second player's gradients carry."
    left_over = "gradients are left over and would be added to the next step's: zero_grad() in either case."
    still_scaled = "These gradients are still scaled: scaler.unscale_(optimizer) divides them by the scale."
    for overflowed in (None, "discriminators", "generators"):
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        updates = Mock(wraps=scaler.update)
        scaler.update = updates  # type: ignore[method-assign]
        weights = {player: nn.Parameter(torch.zeros(2)) for player in gradients}
        optimizers = {player: torch.optim.SGD([weight], lr=1.0) for player, weight in weights.items()}
        for player, weight in weights.items():
            scaler.scale((weight * gradients[player]).sum()).backward()
        if overflowed:
            weights[overflowed].grad = torch.tensor([math.inf, 1.0])
        answer(scaler, optimizers, 1.0)
        where = f"an inf in the gradient of the {overflowed}: " if overflowed else "finite gradients: "
        for player, weight in weights.items():
            still = not weight.any()
            require_each(
                (still or player != overflowed, leaves_out),
                (not still or overflowed in (None, player), f"the {player} must take their step all the same."),
                where=where,
            )
        require_each(
            (updates.call_count > 0, "the scale never adapts: call scaler.update()."),
            (updates.call_count == 1, f"scaler.update() was called {updates.call_count} times. {once}"),
            where=where,
        )
        for player, gradient in gradients.items():
            if player == overflowed:
                continue
            direction = gradient / gradient.norm()
            clipped = gradient if gradient.norm() < 1 else direction
            expect(
                -weights[player].detach(),
                clipped,
                [
                    (direction / SCALE, "Clipped while still scaled: call scaler.unscale_(optimizer) before you clip."),
                    (gradient / norm_of_both, "Each player's gradients have their own norm: clip them apart."),
                    (gradient, "Clip the gradients to max_norm, after unscaling and before the step."),
                    (direction, still_scaled),
                    (SCALE * gradient, still_scaled),
                ],
                "Unscale, clip, step.",
                f"{where}the {player} should move by {clipped}",
            )
        require(all(weight.grad is None or not weight.grad.any() for weight in weights.values()), where + left_over)


@exercise(SPEEDUPS["accumulate"])
def accumulate(answer: Callable[[Step, Tensor, Tensor, int], None]) -> None:
    """Compares the gradients that ``answer(step, real_a, real_b, k)`` leaves with those of the whole batch.

    The step's speed-up "accumulate" leaves the same.
    """
    waiting: set[str] = set()  # players whose losses have not gone backward yet
    kept: set[str] = set()  # players whose losses were asked for while earlier ones waited

    class PartByPart:
        def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            kept.update(waiting & {player})
            waiting.add(player)
            losses = super().losses(player, batch)  # type: ignore[misc]  # this class stands before a step
            for loss in losses.values():
                loss.register_hook(lambda _gradient: waiting.discard(player))
            return losses

    torch.manual_seed(drawn(0, a_seed))
    pictures, size, parts = drawn(
        (4, 16, [4, 2]), lambda random: (6, random.choice((20, 24)), random.sample((2, 3, 6), 2))
    )
    model = CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4, pool_size=0)
    step = make_step(model.double(), PartByPart)  # in float32 rounding can turn a gradient of so small networks
    real_a, real_b = (torch.rand(pictures, 3, size, size, dtype=torch.float64) * 2 - 1 for _ in range(2))
    through = (
        "also holds the generators' loss, which passes through the discriminators on its way back: use "
        "backward(inputs=step.players[...])."
    )
    cleared = "is the last part's only: nothing may clear gradients between the parts."
    for k in parts:
        times = f"is {k} times too large: each loss is a mean, so divide it by k before backward()."
        right, strange = _gradients(step, real_a, real_b)
        last, _ = _gradients(step, real_a.chunk(k)[-1], real_b.chunk(k)[-1])
        before = [weight.detach().clone() for weight in model.parameters()]
        answer(step, real_a, real_b, k)
        got = {player: [weight.grad for weight in weights] for player, weights in step.players.items()}
        for weight in model.parameters():
            weight.requires_grad_().grad = None
        changed = "the weights have changed: leave the gradients in them, and do not let the optimisers step."
        require(all(map(torch.equal, model.parameters(), before)), changed)
        for player, whole in right.items():
            where = f"k = {k}, the {player}' gradient"
            gradients = [gradient for gradient in got[player] if gradient is not None]
            missing = f"{where} is missing: backward() for both players, in every part."
            require(len(gradients) == len(got[player]), missing)
            passing = [(a * whole + b * strange, through) for a in (1, k) for b in (1, k) if player == "discriminators"]
            wrong = [*passing, (k * whole, times), (last[player], cleared), (last[player] / k, cleared)]
            largest = whole.abs().max()  # so that tolerances mean the same for every model
            mistakes = [(gradient / largest, f"{where} {message}") for gradient, message in wrong]
            expect(_flat(gradients) / largest, whole / largest, mistakes, f"{where} is not the whole batch's.")
        at_end = "all parts were kept for one backward() at the end, which takes the memory of the whole batch"
        require(not kept, f"the gradients are right, but {at_end}: backward() in every part.")


def _gradients(step: Step, real_a: Tensor, real_b: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Each player's gradient on a batch, and the gradient of the generators' loss for the discriminators' weights."""
    batch = step.inputs(real_a, real_b)
    losses = {player: torch.stack([*step.losses(player, batch).values()]).sum() for player in step.players}

    def of(player: str, weights_of: str) -> Tensor:
        return _flat(torch.autograd.grad(losses[player], step.players[weights_of], retain_graph=True))

    return {player: of(player, player) for player in losses}, of("generators", "discriminators")


def _flat(gradients: Iterable[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def _any_saved(random: Random) -> list[tuple[str, Tensor]]:
    """Tensors as layers save them, some of them weights, or views of memory that another layer saved before."""
    saved: list[tuple[str, Tensor]] = []
    kinds = random.sample(("Conv2d", "ReLU", "InstanceNorm2d", "Tanh", "Linear"), 3)
    for kind in kinds * 2:
        shared, own = (torch.rand(random.randrange(2, 9), 4, dtype=random.choice(FLOATS)) for _ in range(2))
        saved += [(kind, own), (kind, shared), (kind, nn.Parameter(torch.rand(random.randrange(2, 9))))]
        saved += [(random.choice(kinds), view) for view in (shared, shared[:1], shared.T)]
        saved.append((kind, torch.rand(6)[: random.randrange(1, 6)]))
    return saved


@exercise(right_kept)
def kept_bytes(answer: Callable[[list[tuple[str, Tensor]]], Mapping[str, int]]) -> None:
    """Compares ``answer(saved)`` with `labkit.course.kept_bytes`."""
    picture, weight = torch.rand(2, 8), nn.Parameter(torch.rand(3, 3))
    usual = [("Conv2d", picture), ("Conv2d", weight), ("ReLU", torch.rand(5).half()), ("Conv2d", picture[0])]
    usual += [("ReLU", picture.T), ("ReLU", torch.rand(4)), ("Linear", torch.rand(6)[:2]), ("Conv2d", torch.rand(7))]
    saved = drawn(usual, _any_saved)
    right = right_kept(saved)
    pictures = [(layer, tensor) for layer, tensor in saved if not isinstance(tensor, nn.Parameter)]
    by_memory = {tensor.untyped_storage().data_ptr(): (layer, tensor) for layer, tensor in reversed(pictures)}

    def summed(of: Iterable[tuple[str, Tensor]], size: Callable[[Tensor], int]) -> dict[str, int]:
        pairs = list(of)
        return {kind: sum(size(tensor) for layer, tensor in pairs if layer == kind) for kind in right}

    def whole(tensor: Tensor) -> int:
        return tensor.untyped_storage().nbytes()

    expect(
        answer(list(saved)),
        right,
        [
            (summed(saved, whole), WEIGHTS_AND_VIEWS),
            (
                right_kept((layer, tensor.detach()) for layer, tensor in saved),
                "Weights are there anyway: leave them out.",
            ),
            (summed(pictures, whole), VIEWS),
            (summed({id(tensor): (layer, tensor) for layer, tensor in reversed(pictures)}.values(), whole), VIEWS),
            (
                summed(by_memory.values(), lambda tensor: tensor.nbytes),
                "A view keeps all of its memory alive, not only its own part.",
            ),
            (
                summed(by_memory.values(), lambda tensor: tensor.numel()),
                "Those are numbers, not bytes: float16 has 2, float32 has 4.",
            ),
            (right_kept(reversed(saved)), "Memory belongs to the layer that saved it first."),
        ],
        "Each memory counts once, whole, for the layer that saved it first; weights do not count.",
        f"{len(saved)} tensors of {', '.join(sorted({layer for layer, _ in saved}))}",
    )


FLOATS = (torch.float32, torch.float16)
VIEWS = "Several tensors are views of one memory, which is kept once: remember which you have seen."
WEIGHTS_AND_VIEWS = "Weights are there anyway, and several tensors are views of one memory: neither counts again."
