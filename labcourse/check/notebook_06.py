"""Checks of notebook 06: floats by hand, gradients in float16, one scaler for two optimisers, memory, accumulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from unittest.mock import patch

import torch
from pandas import DataFrame
from torch import Tensor, nn

from labcourse.check.answers import drawn, exercise, expect, guarded, require
from labcourse.check.formula import Mistakes, formula
from labcourse.check.networks import small_model
from labcourse.solutions import kept_bytes as right_kept
from labcourse.solutions import limits as right_limits
from labcourse.solutions import memory_peak as right_peak
from labcourse.solutions import rounding_outcomes as right_outcomes
from labkit.models.step import Step
from labkit.variants.registry import make_step

SCALE = 256.0  # of the losses, in the check of `update`


@formula(right_limits, [(5, 10), (8, 7), (11, 52)], lambda random: (random.randrange(3, 10), random.randrange(2, 20)))
def limits(exponent_bits: int, mantissa_bits: int) -> Mistakes:
    """Compares ``answer(exponent_bits, mantissa_bits)`` with `labcourse.limits`."""
    right = right_limits(exponent_bits, mantissa_bits)
    most = 1.5 * right["max"]
    yield {"eps": right["eps"] / 2}, "The 1 in front of the point is not stored: all mantissa bits come after it."
    yield (lambda got, _: got["max"] >= most), "The highest exponent is kept for inf and nan."
    yield {"tiny": right["tiny"] / 2}, "The lowest exponent of all is kept for zero and subnormals."
    yield {"max": most / (3 - 1.5 * right["eps"])}, "With the largest exponent, all bits of the mantissa can be 1."
    yield (
        {"smallest": right["smallest"] / 2},
        "Subnormals have the exponent of `tiny`, not one less: the last bit of that.",
    )
    yield None, "Largest: the highest normal exponent, all bits 1. Smallest: the lowest one, the last bit alone."


# Sizes in float16: 0, rounded up from below the smallest, subnormal, normal, rounded down to the largest, inf.
RANGES = [(1e-9, 2.9e-8), (3.1e-8, 5.9e-8), (1e-7, 6e-5), (6.2e-5, 9e-4), (65505, 65519), (65521, 1e6)]


def _any_gradients(random: Random) -> tuple[Tensor, float]:
    """Gradients of all sizes and signs and two zeros, and a scale, to `rounding_outcomes`."""
    scale = 2.0 ** random.randrange(4, 20)
    signs = [(-1, 1, 1)[: 2 + place % 2] for place in range(len(RANGES))]
    sizes = [sign * random.uniform(*ends) / scale for ends, own in zip(RANGES, signs, strict=True) for sign in own]
    return torch.tensor([0.0, 0.0, *random.sample(sizes, len(sizes))]), scale


GRADIENTS = torch.tensor([0.0, 0.0, 1e-9, -3e-8, 2e-7, 1e-6, -5e-5, 2**-14, 1e-3, 0.5, -2.0, 65504, 65510])


@formula(right_outcomes, [(GRADIENTS, scale) for scale in (1.0, 2.0**10, 2.0**17)], _any_gradients)
def rounding_outcomes(gradients: Tensor, scale: float) -> Mistakes:
    """Compares ``answer(gradients, scale)`` with `labcourse.rounding_outcomes`."""
    right, n = right_outcomes(gradients, scale), len(gradients) - 2
    with_zeros, below_tiny = (2 + n * right["flushed"]) / (n + 2), right["flushed"] + right["subnormal"]
    late = right_outcomes(gradients, 1.0)["flushed"]
    for subnormal in (right["subnormal"] + 2 / n, (2 + n * right["subnormal"]) / (n + 2)):
        yield {"subnormal": subnormal}, "A gradient of 0 is not subnormal: leave the zeros out first."
    among_all = {"flushed": n * right["flushed"] / (n + 2), "subnormal": n * right["subnormal"] / (n + 2)}
    yield among_all, f"Divide by the {n} gradients that were not zero before, not by all."
    yield {"flushed": with_zeros}, "A gradient that was zero before is not flushed: leave the zeros out first."
    yield {"flushed": below_tiny}, "A value below `finfo.tiny` need not be zero: ask which are 0 in float16."
    yield {"flushed": late}, "So many are flushed without a scale. Scale first: what is flushed stays flushed."
    nearest = f"Flushed are those of the {n} that `.half()` rounds, to the nearest, to 0: a share from 0 to 1."
    yield (lambda got, right: not math.isclose(got["flushed"], right["flushed"], abs_tol=1e-6)), nearest
    infinite = "Count inf and -inf that `.half()` gives: a size just above `finfo.max` is rounded to it."
    yield (lambda got, right: not math.isclose(got["overflowed"], right["overflowed"], abs_tol=1e-6)), infinite
    yield None, "Subnormal are those below `finfo.tiny` in size that are not 0; `finfo.tiny` is not; mind the sign."


def _any_two(random: Random) -> tuple[float, dict[str, Tensor]]:
    """A largest norm, and gradients of two players: the generators' is longer, the discriminators' shorter."""
    max_norm = random.uniform(1.5, 4)
    angles = torch.tensor([random.uniform(0.2, 1.3) for _ in range(2)])
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    lengths = {"generators": random.uniform(2, 9), "discriminators": 0.6}
    gradients = zip(lengths.items(), directions, strict=True)
    return max_norm, {player: max_norm * length * direction for (player, length), direction in gradients}


@exercise()
def update(answer: Callable[[torch.amp.GradScaler, Mapping[str, torch.optim.Optimizer], float], None]) -> None:
    """Checks one ``answer(scaler, optimizers, max_norm)``: an update of two players under one scaler."""
    usual = {"generators": torch.tensor([3.0, 4.0]), "discriminators": torch.tensor([0.0, 0.5])}
    max_norm, gradients = drawn((1.0, usual), _any_two)
    norm_of_both = torch.cat([*gradients.values()]).norm()
    cleared = "Perhaps a gradient is cleared before its step: zero_grad() comes last."
    for overflowed in (None, "discriminators", "generators"):
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        weights = {player: [nn.Parameter(torch.zeros(())) for _ in gradient] for player, gradient in gradients.items()}
        optimizers = {player: torch.optim.SGD(own, lr=1.0) for player, own in weights.items()}
        for player, own in weights.items():
            scaler.scale((torch.stack([*own]) * gradients[player]).sum()).backward()
            if player == overflowed:
                own[-1].grad = torch.tensor(math.inf)
        with patch.object(scaler, "update", wraps=scaler.update) as updates, guarded(answer, if_it_fails=cleared):
            answer(scaler, optimizers, max_norm)
        where = f"an inf in the gradient of the {overflowed}" if overflowed else "finite gradients"
        alone = "The other player's inf ends that player's step alone." if overflowed else cleared
        for player, gradient in gradients.items():
            direction, moved = max_norm * gradient / gradient.norm(), -torch.stack([*weights[player]]).detach()
            clipped = gradient if gradient.norm() < max_norm else direction
            right = torch.zeros(2) if player == overflowed else clipped
            expect(
                moved,
                right,
                [
                    (lambda got, _: not got.isfinite().all(), "scaler.step(optimizer) leaves that step out by itself."),
                    (torch.zeros(2), f"The {player} have not moved, and their step is due. {alone}"),
                    (direction / SCALE, "Clipped while still scaled: call scaler.unscale_(optimizer) before you clip."),
                    (max_norm * gradient / norm_of_both, "Each player has a norm of its own: clip them apart."),
                    (gradient, "Clip the gradients to max_norm, after unscaling and before the step."),
                    (SCALE * gradient, "They are still scaled: scaler.unscale_(optimizer) divides them by the scale."),
                ],
                "Unscale, clip all weights of a player together if longer than max_norm, step; update after both.",
                f"{where}, max_norm {max_norm:g}, how the {player} moved, gradient {gradient.tolist()}",
            )
        calls, scale, now = updates.call_count, SCALE / 2 if overflowed else SCALE, scaler.get_scale()
        once = "Call it once, after both players: it changes the scale that the second player's gradients carry."
        require(calls > 0, f"{where}: the scale never adapts: call scaler.update().")
        require(calls == 1, f"{where}: scaler.update() was called {calls} times. {once}")
        told = f"{where}: the scale is {now:g} then, not {scale:g}: leave it to scaler.update()."
        require(now == scale, told)
        left = any(weight.grad is not None and bool(weight.grad) for own in weights.values() for weight in own)
        require(not left, f"{where}: gradients are left over, and would be added to the next step's: zero_grad().")


SAME_PART = "Each part is one step.inputs(a, b), in which the fakes are kept, for the generators first."


def _noted(step: Step) -> tuple[list[int], set[str]]:
    """Notes the pictures of each batch whose losses are asked for, and players whose earlier losses were kept then."""
    sizes, waiting, kept, losses_of = list[int](), set[str](), set[str](), step.losses

    def losses(player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        sizes.append(len(batch["real_a"]))
        kept.update(waiting & {player})
        waiting.add(player)
        found = losses_of(player, batch)
        for loss in found.values():
            loss.register_hook(lambda _gradient: waiting.discard(player))
        return found

    step.losses = losses  # type: ignore[method-assign]
    return sizes, kept


@exercise()
def accumulate(answer: Callable[[Step, Tensor, Tensor, int], None]) -> None:
    """Compares the gradients that ``answer(step, real_a, real_b, k)`` leaves with those of the whole batch.

    The step's speed-up "accumulate" leaves the same.
    """
    usual = (4, 16, [2, 1])
    pictures, size, parts = drawn(usual, lambda random: (6, random.choice((20, 24)), random.sample((2, 3, 6), 2)))
    seed = drawn(0, lambda random: random.randrange(2**31))
    model = small_model(seed, pool_size=0).double()  # in float32 rounding can turn a gradient of so small networks
    before = [weight.detach().clone() for weight in model.parameters()]
    real_a, real_b = (torch.rand(pictures, 3, size, size, dtype=torch.float64) * 2 - 1 for _ in range(2))
    for k in parts:
        step = make_step(model)
        right, strange = _gradients(step, real_a, real_b)
        last, _ = _gradients(step, real_a.chunk(k)[-1], real_b.chunk(k)[-1])
        model.zero_grad()
        sizes, kept = _noted(step)
        with guarded(answer, model, real_a, real_b, if_it_fails=SAME_PART):
            answer(step, real_a, real_b, k)
        changed = "the weights have changed: leave the gradients in them, and do not let the optimisers step."
        require(all(map(torch.equal, model.parameters(), before)), changed)
        for player, whole in right.items():
            where = f"k = {k}, the {player}' gradient"
            gradients = [weight.grad for weight in step.players[player] if weight.grad is not None]
            missing = f"{where} is missing in some weights: backward() for both players, in every part."
            require(len(gradients) == len([*step.players[player]]), missing)
            both = whole + strange if player == "discriminators" else whole
            largest = whole.abs().max()  # so that tolerances mean the same for every model
            expect(
                torch.cat([gradient.flatten() for gradient in gradients]) / largest,
                whole / largest,
                [
                    (both / largest, f"{where} also holds the generators' loss: backward(inputs=step.players[...])."),
                    (
                        k * whole / pictures / largest,
                        f"{where}: a loss is a mean of pictures already: divide it by k.",
                    ),
                    (k * whole / largest, f"{where} is {k} times too large: divide it by k before backward()."),
                    (last[player] / k / largest, f"{where}: nothing may clear gradients between the parts."),
                ],
                f"{where} is not the whole batch's.",
            )
        size = pictures // k
        told = f"k = {k}: losses of {sizes} pictures were asked for. Cut the {pictures} into {k} parts, of {size} each."
        require(set(sizes) == {size}, told)
        at_end = "all parts were kept for one backward() at the end, which takes the memory of the whole batch"
        require(not kept, f"the gradients are right, but {at_end}: backward() in every part.")


def _gradients(step: Step, real_a: Tensor, real_b: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Each player's gradient on a batch, and the gradient of the generators' loss for the discriminators' weights."""
    batch = step.inputs(real_a, real_b)
    losses = {player: torch.stack([*step.losses(player, batch).values()]).sum() for player in step.players}

    def of(player: str, weights_of: str) -> Tensor:
        gradients = torch.autograd.grad(losses[player], step.players[weights_of], retain_graph=True)
        return torch.cat([gradient.flatten() for gradient in gradients])

    return {player: of(player, player) for player in losses}, of("generators", "discriminators")


def _saved(description: DataFrame) -> list[tuple[str, Tensor]]:
    """Tensors as `labcourse.saved_tensors` returns them.

    Args:
        description: the kind of each tensor's layer; the number of its memory, its rows of 4 numbers, and its type; and
            which part of the memory it is: "whole", "first row", "other rows", "turned", or a "weight". Memory of an
            odd number has a gradient.
    """
    memories: dict[int, Tensor] = {}
    found: list[tuple[str, Tensor]] = []
    for layer, number, rows, dtype, part in description.itertuples(index=False):
        made = torch.zeros(rows, 4, dtype=getattr(torch, dtype), requires_grad=bool(number % 2)).clone()
        whole = memories.setdefault(number, made)
        parts = {"whole": whole, "first row": whole[:1], "other rows": whole[1:], "turned": whole.T}
        found.append((layer, nn.Parameter(whole, requires_grad=bool(number % 2)) if part == "weight" else parts[part]))
    return found


def _description(saved: list[tuple]) -> tuple[DataFrame]:
    return (DataFrame(saved, columns=["layer", "memory", "rows of 4", "dtype", "part"]),)


def _any_saved(random: Random) -> tuple[DataFrame]:
    """Tensors as layers save them, some of them weights, or views of memory that another layer saved before."""
    saved = []
    kinds = random.sample(("Conv2d", "ReLU", "InstanceNorm2d", "Tanh", "Linear"), 3)
    for number, layer in enumerate(kinds * 2):
        sizes = [(random.randrange(2, 9), random.choice(("float32", "float16"))) for _ in range(2)]
        own, shared = ((3 * number + place, *size) for place, size in enumerate(sizes))
        saved += [(layer, *own, "turned"), (layer, *shared, "whole")]
        saved.append((layer, 3 * number + 2, random.randrange(2, 9), "float32", "weight"))
        saved += [(random.choice(kinds), *shared, view) for view in ("first row", "other rows", "turned")]
        saved.append((layer, 100 + number, 6, "float32", "first row"))
    return _description(saved)


WEIGHT = [("Conv2d", 0, 3, "float32", "weight"), *(("Conv2d", memory, 2, "float32", "whole") for memory in (1, 2))]
VIEWS = [("ReLU", 0, 3, "float16", "turned"), ("ReLU", 0, 3, "float16", "turned"), ("ReLU", 2, 1, "float32", "whole")]
VIEWS += [("ReLU", 4, 1, "float32", "whole"), ("Tanh", 0, 3, "float16", "other rows")]
VIEWS += [("Tanh", 1, 2, "float32", "first row"), ("Tanh", 2, 1, "float32", "turned")]


@formula(
    lambda description: right_kept(_saved(description)),
    [_description(WEIGHT), _description(VIEWS)],
    _any_saved,
    lambda description: (_saved(description),),
)
def kept_bytes(description: DataFrame) -> Mistakes:
    """Compares ``answer(saved)`` with `labcourse.kept_bytes`."""
    saved = _saved(description)
    pictures = [(layer, tensor) for layer, tensor in saved if not isinstance(tensor, nn.Parameter)]
    first = {tensor.untyped_storage().data_ptr(): (layer, tensor) for layer, tensor in reversed(pictures)}.values()

    def summed(of: Iterable[tuple[str, Tensor]], size: Callable[[Tensor], int]) -> dict[str, int]:
        return {kind: sum(size(tensor) for layer, tensor in of if layer == kind) for kind in right_kept(saved)}

    begins = {tensor.data_ptr(): (layer, tensor) for layer, tensor in reversed(pictures)}.values()
    views = summed(pictures, lambda tensor: tensor.untyped_storage().nbytes())
    yield right_kept((layer, one.detach()) for layer, one in saved), "Weights are there anyway: leave them out."
    yield views, "Several tensors are views of one memory, which is kept once: remember which you have seen."
    by_begin = summed(begins, lambda tensor: tensor.untyped_storage().nbytes())
    yield by_begin, "A view may begin in the middle of its memory: ask tensor.untyped_storage() where that begins."
    in_layer = {(layer, one.untyped_storage().data_ptr()): (layer, one) for layer, one in reversed(pictures)}.values()
    again = summed(in_layer, lambda tensor: tensor.untyped_storage().nbytes())
    yield again, "Memory that several layers save counts once as well, for the first of them: one set for all layers."
    yield summed(first, lambda tensor: tensor.nbytes), "A view keeps all of its memory alive, not only its own part."
    yield summed(first, torch.numel), "Those are numbers, not bytes: float16 has 2, float32 has 4."
    yield right_kept(reversed(saved)), "Memory belongs to the layer that saved it first."
    yield None, "Each memory counts once, whole, for the layer that saved it first; weights do not count."


def _any_events(random: Random) -> tuple[list[tuple[str, int]]]:
    """Memory that comes and goes, to `memory_peak`: what goes has come before. No two moments are equally high."""
    names = random.sample(("forward", "backward", "optimizer", "losses"), 3)
    alive = [(name, random.randrange(1, 9)) for name in names]  # small: each is there before the peak
    events = [("before the step", random.randrange(10**7)), *alive]
    for _ in range(random.randrange(12, 30)):
        if alive and random.random() < 0.45:
            name, size = alive.pop(random.randrange(len(alive)))
            events.append((name, -size))
        else:
            alive.append((random.choice(names), random.randrange(1, 10**7)))
            events.append(alive[-1])
    return (events + [(name, -size) for name, size in alive],)


EVENTS = [("before the step", 50), ("losses", 5), ("optimizer", 25), ("optimizer", -25), ("forward", 30)]
EVENTS += [("backward", 9), ("forward", -30), ("forward", 40), ("backward", 45), ("forward", -40)]
EVENTS += [("losses", -5), ("backward", -54)]


@formula(right_peak, [(EVENTS,), (EVENTS[:2],), ([*EVENTS[:1], ("before the step", -4)],)], _any_events)
def memory_peak(events: list[tuple[str, int]]) -> Mistakes:
    """Compares ``answer(events)`` with `labcourse.memory_peak`."""
    held: dict[str, int] = {}
    highest: dict[str, int] = {}
    most, one_early = 0, dict[str, int]()
    for name, nbytes in events:
        most, one_early = max((most, one_early), (sum(held.values()) + nbytes, {**held}), key=lambda one: one[0])
        held[name] = held.get(name, 0) + nbytes
        highest[name] = max(highest.get(name, 0), held[name])
    peak, then = right_peak(events)
    came = {name: sum(size for other, size in events if other == name and size > 0) for name in held}
    yield (peak, held), "The bytes of each range are those at the end: keep a copy, dict(held), of the highest moment."
    for early in (one_early, dict.fromkeys(held, 0) | one_early):
        yield (peak, early), "The ranges' bytes are those before the last event of the peak: add it first, then copy."
    yield (sum(came.values()), came), "That is all that ever came: what goes makes room again."
    for its_peak in (sum(highest.values()), peak):
        yield (its_peak, highest), "The ranges' bytes are each at its own highest moment: ask for all at the same one."
    yield (max(size for _, size in events), then), "That is the largest tensor: add up all that lives."
    yield None, "Add up what lives after each event. Where the sum is highest, who holds how much?"
