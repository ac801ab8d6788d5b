"""One update of a step, part by part, beside the same update of the baseline: losses, gradients, weights, pools.

Everything is read from the step's state before and after, so that it does not matter how the step came there: a CUDA
graph, a compiled network and a class of one's own are looked at in the same way.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.devices import OUT_OF_MEMORY
from labkit.measure.equivalence import losses_of
from labkit.measure.record import Batch
from labkit.models.step import Step
from labkit.variants.registry import make_step

Gradients = dict[str, Tensor]  # by the name of the weight

SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")


class State(NamedTuple):
    """What a step has learned, on the host; by the weight's name, where nothing else is said."""

    weights: dict[str, Tensor]  # and buffers
    means: dict[str, Tensor]  # Adam's moments
    squares: dict[str, Tensor]
    counts: dict[str, int]  # Adam's steps
    settings: dict[str, dict[str, Any]]  # by player
    pools: dict[str, dict[str, Any]]  # by pool

    @classmethod
    def of(cls, step: Step) -> State:
        """A copy of the state that `step` is in."""
        named = {**dict(step.model.named_parameters()), **dict(step.model.named_buffers())}
        kept = {weight: own for optimizer in step.optimizers.values() for weight, own in optimizer.state.items()}
        learned = {name: kept[weight] for name, weight in named.items() if weight in kept}
        means, squares = (
            {name: _host(own[moment]) for name, own in learned.items() if moment in own}
            for moment in ("exp_avg", "exp_avg_sq")
        )
        settings = {
            player: {
                name: float(value) if isinstance(value, Tensor) else value
                for name, value in optimizer.param_groups[0].items()
                if name in SETTINGS
            }
            for player, optimizer in step.optimizers.items()
        }
        return cls(
            {name: _host(weight) for name, weight in named.items()},
            means,
            squares,
            {name: int(own.get("step", 0)) for name, own in learned.items()},
            settings,
            {name: {"size": pool.size, **_pool(pool.state_dict())} for name, pool in step.model.pools.items()},
        )


class Update(NamedTuple):
    """One update: the losses it returned, and the states round it."""

    losses: dict[str, float]
    before: State
    after: State

    def gradients(self) -> Gradients:
        """What Adam was given, from the change of its mean: mean' = beta mean + (1 - beta) gradient."""
        beta = next(iter(self.after.settings.values())).get("betas", (0.0,))[0]
        return {
            name: (mean - beta * self.before.means.get(name, torch.zeros_like(mean))) / (1 - beta)
            for name, mean in self.after.means.items()
        }

    def moved(self) -> dict[str, Tensor]:
        """How far each weight went."""
        return {name: weight - self.before.weights[name] for name, weight in self.after.weights.items()}


def update(step: Step, batch: Batch, name: str, before: State | None = None) -> Update:
    """Runs the step once, always with the same random numbers; `before` is its state, if that is known already."""
    torch.manual_seed(0)
    before = before or State.of(step)
    losses = losses_of(step, batch, name)
    return Update(losses, before, State.of(step))


Terms = dict[str, Gradients]  # the gradient of each loss, by its name


class ByTerm:
    """To stack on a step: each loss is differentiated by itself, too, into `terms`."""

    terms: Terms

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = super().losses(player, batch)  # type: ignore[misc]
        weights = self.players[player]  # type: ignore[attr-defined]
        for name, loss in losses.items():
            found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            pairs = zip(weights, found, strict=True)
            self.terms[name] = {self.names[weight]: _host(part) for weight, part in pairs if part is not None}  # type: ignore[attr-defined]
        return losses


def terms_of(step: Step, state: dict[str, Any], batch: Batch) -> Terms:
    """The gradient of each loss term of the plain step in this state; `step` itself stays as it is.

    There is none where the memory does not suffice for one more step.
    """
    plain = make_step(copy.deepcopy(step.model).requires_grad_(True), ByTerm)
    plain.load_state_dict(copy.deepcopy(state))
    plain.terms = {}  # type: ignore[attr-defined]
    plain.names = {weight: name for name, weight in plain.model.named_parameters()}  # type: ignore[attr-defined]
    torch.manual_seed(0)
    try:
        plain(*batch)
    except OUT_OF_MEMORY:
        return {}
    return plain.terms  # type: ignore[attr-defined]


def _pool(state: dict[str, Any]) -> dict[str, Any]:
    kept = state["pictures"]
    return {**state, "pictures": None if kept is None else kept.to("cpu", torch.float64)}


def _host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
