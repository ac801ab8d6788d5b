"""The looks at new steps: on corners of pictures, in another type, from full pools; and two steps side by side."""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, flags
from labkit.measure.record import Pair
from labkit.measure.same import NOT_COMPARED, Gradients, Tolerances, Update, first_difference
from labkit.measure.states import State, hand_over, host, take_step
from labkit.models.model import Model, run_network
from labkit.models.step import Step, place_of
from labkit.training.run import Run
from labkit.variants.registry import make_step

Maker = Callable[[], Step]

# Learning rates of the first updates, as shares of the usual one. The third is after a state was loaded, at a rate
# where schedules end. From the fifth on it changes each time, as a schedule sets it. It is low, because at the full
# rate a difference of rounding doubles with every update: after 24 of them 1e-16 has become 0.04, and at these 4e-9.
FIRST_RATES = 1.0, 1.0, 0.001, 2.0
RATES = 0.02, 0.1
SHIFTED = 15  # updates with other pictures each. All after them have the same tensors again
IN_PLACE = 8  # after so many, pictures lie where the last ones lay, as an allocator may place them
EMA = 0.9


class Look(NamedTuple):
    """New steps that take their first updates in this type, from full pools, as `labkit.fit` would let them.

    In float64 both steps go their own ways, which costs little, and a fault at any moment shows in the end; one update
    on larger pictures is enough, since float64 is slow on many GPUs. In float32 each update is compared, from the same
    state.
    """

    side: int  # pixels, more where the networks need it
    dtype: torch.dtype
    updates: int
    more: int = 0  # pictures that the batch has in addition: a step may be right for one number of them alone

    def within(self, batch: Pair, model: Model) -> Look:
        """This look at as large corners of these pictures as the networks need."""
        needed = -(-max(self.side, model.min_size) // model.size_multiple) * model.size_multiple
        return self._replace(side=min(*batch[0].shape[-2:], needed))

    def pictures(self, batch: Pair) -> Iterator[Pair]:
        """Corners of the pictures for each update."""
        corners = tuple(pictures[..., : self.side, : self.side].to(self.dtype) for pictures in batch)
        given = tuple(torch.cat([pictures, pictures[: self.more].roll(1, -2)]) for pictures in corners)
        shifted = moved((given[0], given[1]), 0)
        for k in range(self.updates):
            if k < SHIFTED:
                last, shifted = shifted, moved((given[0], given[1]), k)
            if IN_PLACE < k < SHIFTED:
                shifted = last[0].detach().copy_(shifted[0]), last[1].detach().copy_(shifted[1])
            yield shifted

    def turns(self, step: Step, batch: Pair) -> Iterator[tuple[int, Pair]]:
        """Prepares the step for each update, and gives its number, from 1 on, and its pictures. Finishes it at last."""
        saved: dict[str, Any] = {}
        for k, pictures in enumerate(self.pictures(batch)):
            if k == 1:
                saved = copy.deepcopy(step.state_dict())
            if k == 2:  # as a run that continues from its checkpoint
                step.load_state_dict(saved)
            step.scale_lr(FIRST_RATES[k] if k < len(FIRST_RATES) else random.Random(k).uniform(*RATES))
            yield k + 1, pictures
        step.finish()

    def new(self, maker: Maker, pools: dict[str, Any] | None, dropout: bool = False) -> Step:
        """A new step with these pools, by default without dropout, which depends on the order of the passes."""
        torch.manual_seed(0)
        step = maker()
        step.place = place_of(next(step.model.to(self.dtype).parameters()))  # it is new: nothing to move
        if not dropout:
            without_dropout(step)
        state = step.state_dict()  # loaded even without pools: an optimiser may have begun with a state
        step.load_state_dict(state | {"pools": pools or state["pools"]})
        return step

    def full_pools(self, maker: Maker, batch: Pair) -> dict[str, Any]:
        """States of pools that are full of noise, for pictures of this size."""
        filling = self.new(maker, None)
        filling(*next(self.pictures(batch)))
        seeds = (seed for seed in itertools.count() if random.Random(seed).random() > 0.5)  # each draws otherwise
        return {pool: full(state, next(seeds)) for pool, state in filling.state_dict()["pools"].items()}

    def walk(self, maker: Maker, pools: dict[str, Any], dropout: bool, batch: Pair) -> tuple[Update, list[Tensor]]:
        """Lets a new step take all updates.

        Returns:
            All updates as if they were one, with Adam's first moments in place of gradients. And translations in
            evaluation mode, of the model and of the average of its weights.

        Raises:
            LabkitError: it fails.
        """
        step = self.new(maker, pools, dropout)
        before, returned = State.of(step), dict[str, Tensor]()
        run = Run(step, self.updates, None, ema=EMA)  # type: ignore[arg-type]  # it has no data
        for k, pictures in self.turns(step, batch):
            torch.manual_seed(k - 1)
            returned |= {f"{loss} of update {k}": value for loss, value in take_step(step, pictures, "given").items()}
            run.add({})
            if k == 1:
                translations(run, pictures)  # a step may keep what it makes for the first ones
        losses = {loss: value.item() for loss, value in returned.items()}  # as late as those who read them may
        after = State.of(step)
        kept = after._replace(weights={}, means={}, squares={})  # which would be as large as three more networks
        return Update.between(before, after, losses, after.means)._replace(after=kept), translations(run, pictures)


def translations(run: Run, pictures: Pair) -> list[Tensor]:
    """All translations in evaluation mode, by the model and by the average of its weights."""
    ways = [way for way in zip(("AtoB", "BtoA"), pictures, strict=True) if way[0] in run.model.directions]
    return [run_network(model.translator(way), real) for model in (run.model, run.translating) for way, real in ways]


# What a new step is asked, in this order. A step that fails in float64, or says that it rounds, is asked in float32.
LOOKS = {
    "first updates": Look(16, torch.float64, 24),
    "larger pictures": Look(48, torch.float64, 1, more=1),
    "without float64": Look(32, torch.float32, 24),
}


def moved(batch: Pair, k: int) -> Pair:
    """The pictures shifted by 3 k pixels, so that a step which keeps those of an earlier call is noticed."""
    real_a, real_b = (pictures.roll(3 * k, -1).contiguous() for pictures in batch)
    return real_a, real_b


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


def without_dropout(step: Step) -> None:
    """Lets the step's networks drop nothing from now on."""
    for layer in step.model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0


def full(pool: dict[str, Any], seed: int) -> dict[str, Any]:
    """The state of a full pool. If the first number of `seed` is above 1/2, it next gives back an earlier picture."""
    kept = pool["pictures"]
    if kept is None or not len(kept):
        return pool
    noise = torch.rand(kept.shape, generator=torch.Generator().manual_seed(seed), dtype=kept.dtype) * 2 - 1
    draws = random.Random(seed).getstate()
    rest = {name: value for name, value in pool.items() if name != "ranks"}
    return {**rest, "filled": len(kept), "random": draws, "pictures": noise.to(kept.device)}


def in_one_update(
    step: Step, baseline: Step, batch: Pair, k: int, allowed: Tolerances, loads: bool = False
) -> str | None:
    """How an update of a step differs from the baseline's on any rank, or None.

    Both take it from the step's state or, if it `loads` that, from the baseline's. `k` is the number of updates before
    and the seed of the random numbers.

    Raises:
        LabkitError: one of them fails.
    """
    same = hand_over(*((baseline, step) if loads else (step, baseline)))
    loaded = allowed.exact and any(optimizer.state for optimizer in step.optimizers.values())
    if not same and k > 1 and not loaded:  # else both have had the same moments since they began
        allowed = allowed._replace(displacement=NOT_COMPARED, distance=1.0, heading=0.0)
    before = copy.deepcopy(baseline.model)
    right, mine = Update.of(baseline, batch, seed=k), Update.of(step, batch, seed=k)  # which may overwrite the batch
    by_term = functools.cache(functools.partial(gradients_by_term, before, batch))
    return ranks.first(first_difference(mine, right, allowed, by_term))  # or they would take other numbers of updates


def gradients_by_term(model: Model, batch: Pair) -> dict[str, Gradients]:
    """The gradient of each loss term of the model's plain step.

    The dict is empty if the memory does not suffice for one more step, or with several ranks.
    """
    if ranks.count() > 1:
        return {}
    plain = make_step(model.requires_grad_(True))
    names = {weight: name for name, weight in plain.model.named_parameters()}
    terms: dict[str, Gradients] = {}
    torch.manual_seed(0)
    given = plain.inputs(*batch)
    try:
        for player, weights in plain.players.items():
            for term, loss in plain.losses(player, given).items():
                parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
                pairs = zip(weights, parts, strict=True)
                terms[term] = {names[weight]: host(part) for weight, part in pairs if part is not None}
    except OUT_OF_MEMORY:
        return {}
    return terms
