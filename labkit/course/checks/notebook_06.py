"""Checks of notebook 06: floats by hand, gradients in float16, one scaler for two optimisers, accumulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

import torch
from torch import Tensor, nn

from labkit.course.checks.answers import passed, require
from labkit.course.floats import fates as right_fates
from labkit.course.floats import limits as right_limits
from labkit.models.cyclegan import CycleGAN
from labkit.step import Step
from labkit.variants.registry import make_step

SCALE = 256.0  # of the losses, in the check of `update`


def limits(answer: Callable[[int, int], Mapping[str, float]]) -> None:
    """Holds ``answer(exponent_bits, mantissa_bits)`` to `labkit.course.floats.limits`."""
    for name, bits in {"float16": (5, 10), "bfloat16": (8, 7)}.items():
        got, right = answer(*bits), right_limits(*bits)
        _require_numbers(got, right)
        where = f"{name}, with {bits[0]} bits of exponent and {bits[1]} of mantissa"
        for what, value in got.items():
            if math.isclose(value, right[what]):
                continue
            told = f"{where}: {what} is {value:g}, it should be {right[what]:g}."
            require(
                what != "eps" or not math.isclose(value, right["eps"] / 2),
                f"{told} The 1 in front of the point is not stored: all mantissa bits come after it.",
            )
            require(
                what != "max" or value < 1.5 * right["max"],
                f"{told} The highest exponent of all is kept for inf and nan.",
            )
            require(
                what != "tiny" or not math.isclose(value, right["tiny"] / 2),
                f"{told} The lowest exponent of all is kept for zero and subnormals.",
            )
            require(
                what != "max" or not math.isclose(value, right["max"] / (2 - right["eps"])),
                f"{told} With the largest exponent, all bits of the mantissa can be 1: nearly 2 times that.",
            )
            require(False, told)
    passed("limits")


def fates(answer: Callable[[Tensor, float], Mapping[str, float]]) -> None:
    """Holds ``answer(gradients, scale)`` to `labkit.course.floats.fates`."""
    gradients = torch.tensor([0.0, 0.0, 1e-9, -3e-8, 2e-7, 1e-6, -5e-5, 1e-3, 0.5, -2.0])
    for scale in (1.0, 2.0**10, 2.0**17):
        before = gradients.clone()
        got, right = answer(gradients, scale), right_fates(gradients, scale)
        require(torch.equal(before, gradients), "the gradients you were given were changed: make new tensors.")
        _require_numbers(got, right)
        if all(math.isclose(got[fate], right[fate], rel_tol=1e-5, abs_tol=1e-9) for fate in right):
            continue
        told = ", ".join(f"{fate} {got[fate]:.3g} (it should be {share:.3g})" for fate, share in right.items())
        where = f"8 gradients and 2 zeros, scale {scale:g}: {told}."
        require(
            not math.isclose(got["flushed"], (2 + 8 * right["flushed"]) / 10, abs_tol=1e-6),
            f"{where} A gradient that was zero before is not flushed: leave the zeros out first.",
        )
        require(
            right["subnormal"] == 0 or not math.isclose(got["flushed"], right["flushed"] + right["subnormal"]),
            f"{where} What is below `finfo.tiny` need not be zero: ask which are 0 in float16.",
        )
        require(
            scale == 1 or got["flushed"] != right_fates(gradients, 1.0)["flushed"],
            f"{where} Scale first, while they are in float32: what float16 has flushed, no scale brings back.",
        )
        require(
            math.isclose(got["flushed"], right["flushed"]),
            f"{where} Flushed are those of the 8 that `.half()` rounds, to the nearest, to 0: a share from 0 to 1.",
        )
        require(got["overflowed"] == right["overflowed"], f"{where} Is -inf counted as well? `isinf` does.")
        require(False, f"{where} Subnormal are those below `finfo.tiny` in size that are not 0; mind the sign.")
    passed("fates")


class CountingScaler(torch.amp.GradScaler):
    """A scaler that knows how often it was updated."""

    def __init__(self) -> None:
        super().__init__("cpu", init_scale=SCALE)
        self.updates = 0

    def update(self, new_scale: float | Tensor | None = None) -> None:  # noqa: D102
        self.updates += 1
        super().update(new_scale)


def update(answer: Callable[[torch.amp.GradScaler, Mapping[str, torch.optim.Optimizer], float], None]) -> None:
    """Holds ``answer(scaler, optimizers, max_norm)`` to what one step of two players under one scaler does."""
    gradients = {"generators": torch.tensor([3.0, 4.0]), "discriminators": torch.tensor([0.0, 0.5])}
    clipped = {"generators": torch.tensor([0.6, 0.8]), "discriminators": gradients["discriminators"]}
    norm_of_both = torch.cat([*gradients.values()]).norm()
    for overflowed in (None, "discriminators", "generators"):
        scaler = CountingScaler()
        weights = {player: nn.Parameter(torch.zeros(2)) for player in gradients}
        optimizers = {player: torch.optim.SGD([weight], lr=1.0) for player, weight in weights.items()}
        for player, weight in weights.items():
            scaler.scale((weight * gradients[player]).sum()).backward()
        if overflowed:
            weights[overflowed].grad[0] = math.inf
        answer(scaler, optimizers, 1.0)
        moved = {player: -weight.detach() for player, weight in weights.items()}
        where = f"an inf in the gradient of the {overflowed}: " if overflowed else "finite gradients: "
        if overflowed:
            (other,) = gradients.keys() - {overflowed}
            require(
                bool((moved[overflowed] == 0).all()),
                f"{where}they must not take a step with it. scaler.step(optimizer) leaves that step out by itself.",
            )
            require(bool((moved[other] != 0).any()), f"{where}the {other} must take their step all the same.")
        require(scaler.updates > 0, f"{where}the scale never adapts: call scaler.update().")
        require(
            scaler.updates == 1,
            f"{where}scaler.update() was called {scaler.updates} times. Call it once, after both players: it changes "
            "the scale, and the second player's gradients carry the scale from before.",
        )
        for player, gradient in gradients.items():
            if player != overflowed:
                _require_moved(where, player, moved[player], gradient, clipped[player], norm_of_both)
        require(
            all(weight.grad is None or not weight.grad.any() for weight in weights.values()),
            f"{where}gradients are left over and would be added to the next step's: zero_grad() in either case.",
        )
    passed("update")


def _require_moved(
    where: str, player: str, moved: Tensor, gradient: Tensor, clipped: Tensor, norm_of_both: Tensor
) -> None:
    """Of a player whose gradient is finite: it moved by its unscaled gradient, clipped to a norm of 1."""

    def by(other: Tensor) -> bool:
        return torch.allclose(moved, other, rtol=1e-3)

    if by(clipped):
        return
    told = f"{where}the {player} moved by {moved.tolist()}, it should be {clipped.tolist()}."
    require(
        not by(gradient / gradient.norm() / SCALE),
        f"{told} Clipped while still scaled: call scaler.unscale_(optimizer) before you clip.",
    )
    require(
        not by(gradient / norm_of_both), f"{told} Each player's gradients have a norm of their own: clip them apart."
    )
    require(not by(gradient), f"{told} Clip the gradients to max_norm, after unscaling and before the step.")
    require(
        not by(gradient / gradient.norm()) and not by(SCALE * gradient),
        f"{told} These gradients are still scaled: scaler.unscale_(optimizer) divides them by the scale.",
    )
    require(False, told)


class PartByPart:
    """A step that notes whether a player's losses were asked for before those of the part before had gone backward."""

    waiting: frozenset[str] = frozenset()
    kept_parts = False

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        self.kept_parts |= player in self.waiting
        self.waiting |= {player}

        def went_backward(_gradient: Tensor) -> None:
            self.waiting -= {player}

        losses = super().losses(player, batch)
        for loss in losses.values():
            loss.register_hook(went_backward)
        return losses


def accumulate(answer: Callable[[Step, Tensor, Tensor, int], None]) -> None:
    """Holds the gradients that ``answer(step, real_a, real_b, k)`` leaves to those of the whole batch.

    The step's speed-up "accumulate" leaves the same.
    """
    torch.manual_seed(0)
    model = CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4, pool_size=0)
    step = make_step(model, PartByPart)
    real_a, real_b = (torch.rand(4, 3, 16, 16) * 2 - 1 for _ in range(2))
    for k in (4, 2):
        right, strange, last = _gradients(step, real_a, real_b, k)
        before = [weight.detach().clone() for weight in model.parameters()]
        answer(step, real_a, real_b, k)
        got = {
            player: None if any(weight.grad is None for weight in weights) else _flat([w.grad for w in weights])
            for player, weights in step.players.items()
        }
        for weight in model.parameters():
            weight.requires_grad_().grad = None
        require(
            all(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True)),
            "the weights have changed: leave the gradients in them, and do not let the optimisers step.",
        )
        for player, gradient in got.items():
            where = f"k = {k}, the {player}' gradient"
            require(gradient is not None, f"{where} is missing: backward() for both players, in every part.")
            _require_gradient(where, player, gradient, right[player], last[player], strange, k)
        require(
            not step.kept_parts,
            "the gradients are right, but all parts were kept for one backward() at the end, which takes the memory of "
            "the whole batch: backward() in every part.",
        )
    passed("accumulate")


def _gradients(step: Step, real_a: Tensor, real_b: Tensor, k: int) -> tuple[dict, Tensor, dict]:
    """Each player's gradient of the whole batch; what the generators' loss adds to D's; the last part's gradients."""

    def on(a: Tensor, b: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        batch = step.inputs(a, b)
        of_generators = sum(step.losses("generators", batch).values())
        own, judges = (
            _flat(torch.autograd.grad(of_generators, step.players[player], retain_graph=True))
            for player in ("generators", "discriminators")
        )
        of_discriminators = sum(step.losses("discriminators", batch).values())
        theirs = _flat(torch.autograd.grad(of_discriminators, step.players["discriminators"]))
        return {"generators": own, "discriminators": theirs}, judges

    right, strange = on(real_a, real_b)
    last, _ = on(real_a.chunk(k)[-1], real_b.chunk(k)[-1])
    return right, strange, last


def _require_gradient(
    where: str, player: str, got: Tensor, right: Tensor, last: Tensor, strange: Tensor, k: int
) -> None:
    """Requires `got` to be `right`, or names the mistake that makes it what it is."""

    def near(other: Tensor) -> bool:
        return bool((got - other).norm() <= 1e-3 * other.norm())

    if near(right):
        return
    if player == "discriminators":
        require(
            not any(near(a * right + b * strange) for a in (1, k) for b in (1, k)),
            f"{where} also holds the generators' loss, which passes through the discriminators on its way back: "
            "restrict that backward pass with backward(inputs=step.players[...]).",
        )
    require(
        not near(k * right),
        f"{where} is {k} times too large: a loss is a mean over its part, so divide it by k before backward().",
    )
    require(
        not near(last) and not near(last / k),
        f"{where} is the last part's only: nothing may clear gradients between the parts.",
    )
    cosine = torch.cosine_similarity(got, right, dim=0)
    require(False, f"{where} is not the whole batch's: cosine {cosine:.2f}, norm {got.norm() / right.norm():.2f} times")


def _flat(gradients: list[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def _require_numbers(got: Mapping[str, float], right: Mapping[str, float]) -> None:
    require(
        isinstance(got, Mapping) and got.keys() == right.keys(),
        f"a dict with the keys {[*right]} is expected, not {got!r}. Is a `return` missing?",
    )
    numbers = (Real, Tensor)
    require(all(isinstance(value, numbers) for value in got.values()), f"a number is expected for each of {[*right]}.")
