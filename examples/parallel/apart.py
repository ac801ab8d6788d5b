"""Modules apart: each process trains one player of a `DeviationGAN`, with weights of the others that grow old.

After an article that puts its three modules on three machines, which exchange weights once an epoch. `apart` makes the
step of one of these processes, which are ranks under torchrun.

A player's losses take the weights of all players as they were before the step: each one's update comes after the fakes
that the next one needs. So with an exchange before every step the ranks compute what one process does, the same numbers
in the same order. Two choices of the model are different. With judged="pictures" the translator's losses need the
decoder after its update, and here they get it before. With the exchange every n steps, n > 1, weights of others are up
to n - 1 steps old.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from labkit import ranks
from labkit.errors import LabkitError
from labkit.models.deviation import STAGES, DeviationGAN
from labkit.models.model import Model
from labkit.models.step import RANGE, Batch, Step
from labkit.variants.registry import make_step
from labtrace.errors import check_at_least


def apart(model: Model, exchange_every: int) -> Step:
    """The step of a rank that trains one module of a `DeviationGAN` and takes the others from the other ranks.

    All ranks need the same pictures and the same seed. ``step.state_dict()`` is that of the whole model, so its
    checkpoints load anywhere. Ranks that continue from one begin with an exchange.

    Args:
        model: a `DeviationGAN` of stage "joint".
        exchange_every: steps from one exchange to the next.

    Raises:
        LabkitError: the model or the number does not fit, or there is not a rank for each module.
    """
    if not isinstance(model, DeviationGAN) or model.stage != "joint":
        raise LabkitError("Only the modules of a DeviationGAN of stage 'joint' can be trained apart.")
    check_at_least(1, exchange_every=exchange_every)
    players = list(model.players())
    if ranks.count() != len(players):
        raise LabkitError(f"{ranks.count()} processes: start one a player, torchrun --nproc-per-node={len(players)}.")
    settings = dict(module=players[ranks.number()], exchange_every=exchange_every)
    return make_step(model, type("RanksApart", (RanksApart,), settings))


class Alone(Step):
    """Runs one player.

    Attributes:
        module: the player that this process trains.
    """

    module: str

    def run(self, batch: Batch) -> dict[str, Tensor]:
        if self.module == "discriminator":
            with record_function(f"{RANGE}translator forward"), torch.no_grad():
                self.losses("translator", batch)  # leaves in `batch` the fakes to judge
        losses = self.learn(self.module, batch)
        with record_function(f"{RANGE}{self.module} optimizer"):
            self.update(self.module)
        return losses


class RanksApart(Alone):
    """Each rank trains a module, and all exchange weights at the same step.

    Attributes:
        exchange_every: steps from one exchange to the next.
        done: steps of this process so far.
    """

    exchange_every: int
    done = 0
    ranks = len(STAGES["joint"])
    loss_names: list[str] | None = None  # of all ranks

    def run(self, batch: Batch) -> dict[str, Tensor]:
        if self.done % self.exchange_every == 0:
            with record_function(f"{RANGE}exchange"):
                self.exchange()
        self.done += 1
        losses = super().run(batch)
        if self.loss_names is None:
            self.loss_names = [name for names in ranks.gathered(list(losses)) for name in names]
        zero = torch.zeros_like(next(iter(losses.values())))
        values = torch.stack([losses.get(name, zero) for name in self.loss_names])
        dist.all_reduce(values)
        return dict(zip(self.loss_names, values.unbind(), strict=True))

    def exchange(self) -> None:
        """Sends the weights of this module, and receives those of the others."""
        for rank, player in enumerate(self.players):
            for weight in self.players[player]:
                dist.broadcast(weight.detach(), rank)

    def finish(self) -> None:
        self.exchange()

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole model, the same on every rank. Every rank has to ask for it."""
        state, mine = super().state_dict(), {id(weight) for weight in self.players[self.module]}
        weights = {name: state["model"][name] for name, weight in self.model.named_parameters() if id(weight) in mine}
        of_ranks = ranks.gathered((weights, state["optimizers"][self.module], state["pools"]))
        for player, (weights, optimizer, pools) in zip(self.players, of_ranks, strict=True):
            state["model"] |= weights
            state["optimizers"][player] = optimizer
            if player == "discriminator":
                state["pools"] = pools
        return state
