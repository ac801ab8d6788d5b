"""New steps for a comparison: on corners of pictures, in another type, from full pools, and where they arrive."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.devices import flags
from labkit.errors import LabkitError
from labkit.measure.record import Pair
from labkit.measure.same import Update
from labkit.measure.states import State, displacements, take_step
from labkit.models.model import run_network
from labkit.models.step import Step, place_of

Maker = Callable[[], Step]

# Pixels of a corner, and first updates there. In float64 both steps go their own ways, which costs little, and a fault
# at any moment shows in the end; one update on larger pictures is enough, since float64 is slow on many GPUs. In
# float32 each update is compared, from the same state.
SIDES = {torch.float64: {16: 24, 48: 1}, torch.float32: {48: 12}}
# After two updates the learning rate changes each time, as a schedule sets it. It is low, because at the full rate a
# difference of rounding doubles with every update: after 24 of them 1e-16 has become 0.04, and at these rates 1e-9.
RATES = 0.02, 0.1
TRANSLATED = 1e-5  # a difference of translations by rounding, as a share


class Walk(NamedTuple):
    """Several updates, as if they were one."""

    whole: Update  # the losses of all of them; Adam's first moments in place of gradients
    translations: list[Tensor]  # of real_a, and of real_b if the model translates it, in evaluation mode

    def translates_as(self, right: Walk) -> bool:
        """Whether the translations, which are in float32, are the same."""
        pairs = zip(self.translations, right.translations, strict=True)
        return all((mine - its).norm() <= TRANSLATED * its.norm() for mine, its in pairs)


def walk(step: Step, batch: Pair, updates: int) -> Walk:
    """Lets a new step take so many updates.

    Raises:
        LabkitError: it fails.
    """
    before = State.of(step)
    losses: dict[str, float] = {}
    for k in range(updates):
        torch.manual_seed(k)
        step.scale_lr(rate(k))
        losses |= {f"{loss} {k}": value.item() for loss, value in take_step(step, moved(batch, k), "given").items()}
    after = State.of(step)
    ways = zip(("AtoB", "BtoA"), batch, strict=True)
    translations = [run_network(step.model.translator(way), real) for way, real in ways if way in step.model.directions]
    kept = after._replace(weights={}, means={})  # which would be as large as two more networks
    return Walk(Update(losses, after.means, displacements(before, after), kept), translations)


def rate(k: int) -> float:
    """The learning rate of update k, from 0 on, as a share of the usual one."""
    return 1.0 if k < 2 else random.Random(k).uniform(*RATES)


def moved(batch: Pair, k: int) -> Pair:
    """The pictures shifted by 3 k pixels, so that a step which keeps those of an earlier call is noticed."""
    real_a, real_b = (pictures.roll(3 * k, -1).contiguous() for pictures in batch)
    return real_a, real_b


def corner(batch: Pair, side: int, dtype: torch.dtype) -> Pair:
    """Square corners of the pictures in this type."""
    real_a, real_b = (pictures[..., :side, :side].to(dtype).contiguous() for pictures in batch)
    return real_a, real_b


def sides(batch: Pair, step: Step, dtype: torch.dtype) -> dict[int, int]:
    """The sides of `SIDES`, or as small as pictures and networks allow, and a number of updates for each."""
    model, given = step.model, min(batch[0].shape[-2:])
    found: dict[int, int] = {}
    for side, updates in SIDES[dtype].items():
        side = min(given, -(-max(side, model.min_size) // model.size_multiple) * model.size_multiple)
        found.setdefault(side, updates)
    return found


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Inside, new tensors have this type, float32 keeps its digits, and nothing is compiled, which would take long."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with flags("off" if dtype == torch.float32 else ""), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.set_default_dtype(before)


def new(
    maker: Maker,
    dtype: torch.dtype,
    pools: dict[str, Any] | None = None,
    timed: Step | None = None,
    dropout: bool = False,
) -> Step:
    """A new step in this type, with these pools, by default without dropout, which depends on the order of the passes.

    Raises:
        LabkitError: its model is that of the step that was `timed`, which would be converted.
    """
    torch.manual_seed(0)
    step = maker()
    if timed is not None and step.model is timed.model:
        raise LabkitError("the function that makes it gives one model each time")
    step.place = place_of(next(step.model.to(dtype).parameters()))  # it is new: nothing to move
    if not dropout:
        without_dropout(step)
    state = step.state_dict()  # loaded even without pools: an optimiser may have begun with a state
    step.load_state_dict(state | {"pools": pools or state["pools"]})
    return step


def without_dropout(step: Step) -> None:
    """Lets the step's networks drop nothing from now on."""
    for layer in step.model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0


def full(pool: dict[str, Any]) -> dict[str, Any]:
    """The state of a full pool whose next draw gives back an earlier picture."""
    kept = pool["pictures"]
    if kept is None or not len(kept):
        return pool
    noise = torch.rand(kept.shape, generator=torch.Generator().manual_seed(0), dtype=kept.dtype) * 2 - 1
    draws = random.Random(0).getstate()  # its first number is above 1/2
    rest = {name: value for name, value in pool.items() if name != "ranks"}
    return {**rest, "filled": len(kept), "random": draws, "pictures": noise.to(kept.device)}
