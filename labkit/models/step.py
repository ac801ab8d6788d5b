"""The training step of a GAN.

Algorithm (Zhu et al. 2017, section 4, in the order of its public reference):

    for each player in turn (CycleGAN: the generators, then the discriminators):
        compute the player's losses          `losses`, which runs the networks
        differentiate their sum              `backward`
        let the player's optimiser step      `update`

Each model has a step of its own, which computes its losses: read `labkit.models.cyclegan.CycleGANStep` next. The
methods called seams are there to be overridden: a speed-up is a class that overrides one of them, calls `super()`, and
leaves the result as it was. `labkit.make_step` stacks any number of speed-ups on a model's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer, SparseAdam
from torch.profiler import record_function

from labkit.errors import LabkitError, explained
from labkit.models.model import Model
from labkit.models.optimizers import load_state, rates_of, set_rates, state_of
from labtrace.ranges import RANGE as RANGE

# What one step works on. `Step.inputs` puts in real_a and real_b, (B, 3, H, W), and for each pool its decisions,
# draw_fake_A and draw_fake_B, (B, 4) integers. Players add the fakes, and models the codes, that later players need.
Batch = dict[str, Tensor]
Forward = Callable[[Tensor], Tensor]  # a module, or a function that runs one, for example with checkpointing
BUILDS = "Return for each player a torch.optim.Optimizer that needs neither a closure nor sparse gradients."
LOSSES = "Return each by a name of its own (or is `return` missing?), a 0-d tensor with a gradient: mean(), no item()."


class Step:
    """One update of every player from one batch.

    ``step(real_a, real_b)`` takes two batches (B, 3, H, W) in [-1, 1], on the model's device and of its float
    type. It returns the losses by name: detached 0-d tensors on the device, weighted as they enter their sum.
    After the first call nothing in it waits for the device.

    A step belongs to its model's weights as they are when it is made. After `model.to`, make the step again and load
    the `state_dict` of the old one. `copy.deepcopy` copies a step together with its model.

    Args:
        model: a `CycleGAN`, a `DeviationGAN`, or another model with players.
        lr: Adam's learning rate, for every player or by player. None takes the model's own.
        betas: Adam's decay rates.

    Raises:
        DataError: the batch does not fit the networks, or leaves [-1, 1] (checked in the first call only).
        LabkitError: a learning rate cannot be used, or all weights of a player are frozen. In a call: the weights were
            moved or replaced, or `lr` was changed, after the step was made. Or, in the first call, a custom network
            cannot learn from the pictures or takes fewer sizes than it says, or a loss is no number with a gradient.
    """

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
        self.check(real_a, real_b)
        if not (losses := self.run(self.inputs(real_a, real_b))):
            raise LabkitError("the step has no losses: does `run` or `learn` of yours lack its `return`?")
        in_order = [*self.model.loss_names, *losses]
        return {name: losses[name] for name in in_order if name in losses}

    # ---- the seams

    def run(self, batch: Batch) -> dict[str, Tensor]:
        """Lets the players learn in turn. Each leaves in `batch` the fakes that the next one needs."""
        losses: dict[str, Tensor] = {}
        for player in self.players:
            losses |= self.learn(player, batch) or {}
            with self.mark(f"{player} optimizer"):
                self.update(player)
        return losses

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        """Computes losses and gradients of one player."""
        with self.mark(f"{player} forward"):
            losses = self.losses(player, batch)
        if player not in self.named.values():
            self.check_losses(player, losses)
        with self.mark(f"{player} backward"):
            self.backward(sum(losses.values()), player)  # type: ignore[arg-type]  # mypy allows for no loss at all
        return {name: loss.detach() for name, loss in losses.items()}

    def mark(self, part: str) -> AbstractContextManager:
        """The range of a part of the step in recordings."""
        return record_function(RANGE + part)

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:
        """The losses that `player` minimises, by name, from the method called like the player."""
        return getattr(self, player)(batch)

    def backward(self, loss: Tensor, player: str) -> None:
        """Computes the gradients of this player's weights only: the other networks are frozen."""
        loss.backward(inputs=self.players[player])

    def update(self, player: str) -> None:
        """Lets the player's optimiser step."""
        self.optimizers[player].step()
        self.optimizers[player].zero_grad()

    def inputs(self, real_a: Tensor, real_b: Tensor) -> Batch:
        """Everything that changes from step to step: the pictures, and the pools' decisions, drawn on the host."""
        pools = self.model.pools.items()
        draws = {f"draw_{name}": pool.draw(len(real_a)).to(real_a.device) for name, pool in pools}
        return {"real_a": real_a, "real_b": real_b, **draws}

    def pooled(self, pool: str, fakes: Tensor, batch: Batch) -> Tensor:
        """As many fakes, some of them from earlier steps, as `inputs` has decided."""
        return self.model.pools[pool].exchange(fakes, batch[f"draw_{pool}"])

    def judge(self, discriminator: Forward, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The discriminator's verdicts on real pictures and on fakes."""
        return self.both(discriminator, real, fake)

    def both(self, network: Forward, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of the same network for two batches of equal size."""
        return network(first), network(second)

    def finish(self) -> None:
        """Brings together what several processes have learned. `labkit.fit` calls it after the last step."""

    # ---- making a step

    ranks = 1  # the processes that take the step together
    shares = 1  # the parts into which they divide each batch
    steps_done = 0  # before this one, as `labkit.fit` counts them, resumed ones included

    def __init__(
        self,
        model: Model,
        lr: float | Mapping[str, float] | None = None,
        betas: tuple[float, float] = (0.5, 0.999),
    ):
        self.model = model
        if not model.training:  # as `labkit.load_model` returns it
            model.train()
        self.players = model.players()
        for player, weights in self.players.items():
            if not weights:
                raise LabkitError(f"all weights of the {player} are frozen: set requires_grad=True for some of them.")
        self.lr = rates_of(model.learning_rates(), lr)
        self.built = False
        self.optimizers = self.build((float(betas[0]), float(betas[1])))  # NumPy's in 32 bits round otherwise
        if not self.built and sum("build" in vars(kind) for kind in type(self).__mro__) > 2:  # a speed-up's, too
            raise LabkitError(
                "your build() does not call super().build(betas), in which speed-ups prepare the networks. To choose "
                "other optimisers override optimizer(weights, lr, betas) instead."
            )
        with explained("the optimisers", BUILDS):
            if any(isinstance(self.optimizers[player], LBFGS | SparseAdam) for player in self.players):
                raise TypeError(f"{self.optimizers}")
            groups = {player: self.optimizers[player].param_groups for player in self.players}
            self.rates = {player: [float(group["lr"]) for group in of_player] for player, of_player in groups.items()}
        self.lr = {player: rates[0] for player, rates in self.rates.items()}  # custom optimisers may have others
        self.lr_made, self.lr_now = dict(self.lr), dict(self.lr)
        self.scale_lr(1.0)  # a rate of NumPy's in 32 bits would become another number in a checkpoint
        self.range_checked = False
        self.named: dict[str, str] = {}  # the player of each loss of the first step
        self.first = next(model.parameters())
        self.place = place_of(self.first)

    def build(self, betas: tuple[float, float]) -> dict[str, Optimizer]:
        """An optimiser for each player. Speed-ups prepare the networks here, so call `super().build` in yours."""
        self.built = True
        return {player: self.optimizer(weights, self.lr[player], betas) for player, weights in self.players.items()}

    def optimizer(self, weights: list[nn.Parameter], lr: float, betas: tuple[float, float]) -> Optimizer:
        """The optimiser of one player. A custom one needs a learning rate for each group of weights."""
        return torch.optim.Adam(weights, lr=lr, betas=betas, **self.adam_options())

    def adam_options(self) -> dict[str, bool]:
        """Keyword arguments of `torch.optim.Adam` that choose its implementation. Most other optimisers take them."""
        return {}

    def check(self, real_a: Tensor, real_b: Tensor) -> None:
        """Raises `DataError` or `LabkitError` if the step cannot be taken with this batch."""
        first = next(self.model.parameters())
        if first is not self.first or place_of(first) != self.place:
            raise LabkitError(
                "the model's weights were moved, converted or replaced after its step was made. Make the step again, "
                "and load this one's state_dict() into it."
            )
        if self.lr != self.lr_made:
            raise LabkitError(
                "step.lr was changed, without effect: use make_step(model, lr=...) or step.scale_lr(factor)."
            )
        self.model.check(real_a, real_b, values=not self.range_checked)
        self.range_checked = True

    def check_losses(self, player: str, losses: Any) -> None:
        """Raises `LabkitError` unless these are losses by name from which the player can learn."""
        with explained(f"the losses of the {player}", LOSSES):
            for name, loss in (losses or {"all": losses}).items():
                whose = self.named.setdefault(name, player)
                number = isinstance(loss, Tensor) and loss.dim() == 0 and loss.is_floating_point()
                if not (number and loss.device == self.first.device and isinstance(name, str) and whose == player):
                    raise TypeError(f"{name!r} of the {whose} is {loss!r:.60}")
            if all(loss.grad_fn is None for loss in losses.values()):
                raise TypeError(f"none of {', '.join(losses)} has a gradient")

    # ---- learning rates and states

    def scale_lr(self, factor: float) -> None:
        """Sets every learning rate to `factor` times the one the step was made with."""
        for player, optimizer in self.optimizers.items():
            self.lr_now[player] = self.lr[player] * float(factor)
            set_rates(optimizer, [rate * float(factor) for rate in self.rates[player]])

    def state_dict(self) -> dict[str, Any]:
        """Networks, optimisers and pools: everything a run needs to resume as if it had never stopped."""
        return {
            "model": self.model.state_dict(),
            "optimizers": {player: state_of(self.optimizers[player], self.lr_now[player]) for player in self.players},
            "dtype": self.place[1],  # of the weights that the optimisers' states belong to
            "pools": {name: pool.state_dict() for name, pool in self.model.pools.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the state of any step of this model, even one with other speed-ups.

        Raises:
            LabkitError: it was trained with other optimisers.
        """
        for player, optimizer in self.optimizers.items():
            self.lr_now[player] = load_state(player, optimizer, state["optimizers"][player], state.get("dtype"))
        self.model.load_state_dict(state["model"])
        weight = next(self.model.parameters())
        for name, pool in self.model.pools.items():
            pool.load_state_dict(state["pools"][name], weight.device, weight.dtype)


def place_of(weight: Tensor) -> tuple:
    """The weight's device, type and layout in memory."""
    return weight.device, weight.dtype, weight.stride()
