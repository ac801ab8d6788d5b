"""The training step of a GAN, and its seams: the methods that a speed-up overrides. The result stays the same.

Algorithm (Zhu et al. 2017, section 4, in the order of its public reference):

    for each player in turn (CycleGAN: the generators, then the discriminators):
        compute the player's losses          `losses`, which runs the networks
        differentiate their sum              `backward`
        let the player's optimiser step      `update`

Each model has its own step, which computes its losses: `labkit.models.cyclegan.CycleGANStep` is the one to read. A
speed-up is a class that overrides a seam and calls `super()`. `labkit.make_step` stacks any number of them on a
model's step.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import record_function

from labkit.errors import LabkitError
from labkit.model import Model
from labkit.optimizers import check_kind, load_state, rates_of, set_rates, state_of

RANGE = "labkit: "  # the names of labkit's own ranges start with it, in traces and tables

Batch = dict[str, Tensor]
Network = Callable[[Tensor], Tensor]  # a module, or a module that something is wrapped round


class Step:
    """One update of every player from one batch.

    ``step(real_a, real_b)`` takes two batches (B, 3, H, W) in [-1, 1], on the model's device and of its float
    type, and returns the losses by name: detached 0-d tensors on the device, weighted as they enter their sum.
    After the first call nothing in it waits for the device.

    Args:
        model: a `CycleGAN`, a `DeviationGAN`, or another model with players.
        lr: Adam's learning rate for every player; None takes the model's own.
        betas: Adam's decay rates.

    Raises:
        DataError: the batch does not fit the networks, or (checked in the first call only) leaves [-1, 1].
        LabkitError: in the first call, if a generator of your own does not give back pictures of the same size.
    """

    made_of: tuple[tuple[type, ...], dict[str, Any]] | None = None  # by `stacked`: its classes and their attributes
    ranks = 1  # the processes that take the step together
    shares = 1  # the parts into which they divide each batch

    def __init__(self, model: Model, lr: float | None = None, betas: tuple[float, float] = (0.5, 0.999)):
        self.model = model
        self.players = model.players()
        self.lr = {player: own if lr is None else lr for player, own in model.learning_rates().items()}
        self.optimizers = self.build(betas)
        self.rates = {player: rates_of(optimizer) for player, optimizer in self.optimizers.items()}
        self.lr = {player: rates[0] for player, rates in self.rates.items()}  # an optimiser of your own may have others
        self.lr_now = dict(self.lr)
        self.range_checked = False
        self.place = _place(self.model)

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
        if self.place != _place(self.model):
            self.follow()
        self.model.check_batch(real_a, real_b)
        if not self.range_checked:  # only once: it makes the host wait for the device
            self.model.check_range(real_a, real_b)
            self.model.check_networks(real_a[:1])
            self.range_checked = True
        losses = self.run(self.inputs(real_a, real_b))
        in_order = [name for name in self.model.loss_names if name in losses]
        return {name: losses[name] for name in dict.fromkeys([*in_order, *losses])}

    # ---- the seams

    def build(self, betas: tuple[float, float]) -> dict[str, Optimizer]:
        """An optimiser for each player. Speed-ups prepare the networks here: call `super().build` in yours."""
        self.built = True
        return {player: self.optimizer(weights, self.lr[player], betas) for player, weights in self.players.items()}

    def optimizer(self, weights: list[nn.Parameter], lr: float, betas: tuple[float, float]) -> Optimizer:
        """The optimiser of one player. One of your own needs a learning rate for each group of weights."""
        return torch.optim.Adam(weights, lr=lr, betas=betas, **self.adam_options())

    def adam_options(self) -> dict[str, bool]:
        """How Adam computes: keyword arguments of `torch.optim.Adam`; most other optimisers know them as well."""
        return {}

    def inputs(self, real_a: Tensor, real_b: Tensor) -> Batch:
        """Everything that changes from step to step: the pictures, and the pools' decisions, drawn on the host."""
        pools = self.model.pools.items()
        draws = {f"draw_{name}": pool.draw(*real_a.shape).on(real_a.device) for name, pool in pools}
        return {"real_a": real_a, "real_b": real_b, **draws}

    def run(self, batch: Batch) -> dict[str, Tensor]:
        """The players in turn. Each leaves in `batch` the fakes that the next one needs."""
        losses: dict[str, Tensor] = {}
        for player in self.players:
            losses |= self.learn(player, batch)
            with record_function(f"{RANGE}{player} optimizer"):
                self.update(player)
        return losses

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        """Losses and gradients of one player."""
        with record_function(f"{RANGE}{player} forward"):
            losses = self.losses(player, batch)
        with record_function(f"{RANGE}{player} backward"):
            self.backward(sum(losses.values()), player)  # type: ignore[arg-type]  # mypy allows for no loss at all
        return {name: loss.detach() for name, loss in losses.items()}

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:
        """The losses that `player` minimises, by name: each player has a method of its own name."""
        return getattr(self, player)(batch)

    def pooled(self, pool: str, fakes: Tensor, batch: Batch) -> Tensor:
        """As many fakes, some of them from earlier steps: the decisions that `inputs` drew are carried out."""
        return self.model.pools[pool].exchange(fakes, batch[f"draw_{pool}"])

    def judge(self, discriminator: Network, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The verdicts on real pictures and on fakes."""
        return self.both(discriminator, real, fake)

    def both(self, network: Network, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Two batches of equal size through the same network."""
        return network(first), network(second)

    def backward(self, loss: Tensor, player: str) -> None:
        """Gradients of `player`'s weights, and of no others: the other networks are frozen."""
        loss.backward(inputs=self.players[player])

    def update(self, player: str) -> None:
        """One step of the player's optimiser."""
        self.optimizers[player].step()
        self.optimizers[player].zero_grad()

    def settle(self) -> None:
        """Called after the last step of a run: what several processes have learned comes together."""

    # ---- copies and moves

    def __reduce__(self) -> tuple:
        """Steps can be pickled and copied, though `labkit.make_step` makes a class for each."""
        if self.made_of is None:
            return copyreg.__newobj__, (type(self),), self.__getstate__()  # type: ignore[attr-defined]
        return _unpickled, self.made_of, self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.place = _place(self.model)

    def follow(self) -> None:
        """Called if the model was moved, for example by `model.to`: optimisers and pools go where it is now.

        Raises:
            LabkitError: it is on another device, and the step has speed-ups, which were chosen for the one before; or
                it has new tensors for weights, as after ``load_state_dict(assign=True)``.
        """
        place = _place(self.model)
        weights = set(self.model.parameters())
        if not all(weight in weights for player in self.players.values() for weight in player):
            raise LabkitError(
                "the model's weights were replaced after its step was made, which would train the old ones. Make the "
                "step again."
            )
        names = [kind.name for kind in type(self).__mro__ if issubclass(kind, SpeedUp) and "name" in vars(kind)]
        if names and place[0] != self.place[0]:
            raise LabkitError(
                f"the model was moved from {self.place[0]} to {place[0]} after its step was made, with speed-ups that "
                f"were chosen for {self.place[0]} ({', '.join(names)}). Make the step again after the move; to go on "
                "from where this one was, load its state_dict() into the new one."
            )
        self.load_state_dict(self.state_dict())
        self.place = place

    # ---- learning rates and states

    def scale_lr(self, factor: float) -> None:
        """Sets every learning rate to `factor` times the one the step was made with."""
        for player, optimizer in self.optimizers.items():
            self.lr_now[player] = self.lr[player] * factor
            set_rates(optimizer, [rate * factor for rate in self.rates[player]])

    def state_dict(self) -> dict[str, Any]:
        """Networks, optimisers and pools: everything a run needs to resume as if it had never stopped."""
        optimizers = {player: state_of(optimizer) for player, optimizer in self.optimizers.items()}
        for player, state in optimizers.items():
            state["param_groups"][0]["lr"] = self.lr_now[player]  # not rounded, as on a GPU it may be
        pools = {name: pool.state_dict() for name, pool in self.model.pools.items()}
        return {"model": self.model.state_dict(), "optimizers": optimizers, "pools": pools}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the state of any step of this model, even one with other speed-ups.

        Raises:
            LabkitError: it was trained with other optimisers.
        """
        for player, optimizer in self.optimizers.items():
            check_kind(player, optimizer, state["optimizers"][player])
        self.model.load_state_dict(state["model"])
        for player, optimizer in self.optimizers.items():
            load_state(optimizer, state["optimizers"][player])
            rates = [group["lr"] for group in state["optimizers"][player]["param_groups"]]
            self.lr_now[player] = rates[0]
            set_rates(optimizer, rates)
        weight = next(self.model.parameters())
        for name, pool in self.model.pools.items():
            pool.load_state_dict(state["pools"][name], weight.device, weight.dtype)


def stacked(classes: tuple[type, ...], attributes: dict[str, Any]) -> type[Step]:
    """A class of step that is made of these, the first outermost, with these attributes."""
    return type("Step", classes, {**attributes, "made_of": (classes, attributes)})


def _unpickled(classes: tuple[type, ...], attributes: dict[str, Any]) -> Step:
    """A step of a class that `stacked` made, still without its state."""
    step_class: Any = stacked(classes, attributes)
    return step_class.__new__(step_class)


def _place(model: Model) -> tuple:
    """Where a model's weights are, and how they lie there: device, type, strides and identity of the first weight."""
    weight = next(model.parameters())
    return weight.device, weight.dtype, weight.stride(), id(weight)


class SpeedUp(Step):
    """The base of labkit's speed-ups, each a class in a file of its own that overrides seams of a step.

    A speed-up may not change *what* is computed: tests/test_speedups.py compares each, and every pair, with the
    baseline. Its docstring says how it differs, which part of a step's time it should reduce, and when it does not
    help.
    """

    name: str
    changes: str  # how it differs from the baseline
    improves: str  # the part of a step's time, or of its memory, that should get smaller
    needs: str  # device, companions, and speed-ups it cannot be combined with
    tolerance: str  # "exact", or "16-bit" for rounding to 16 bits
    excludes: Mapping[str, str] = MappingProxyType({})  # names it cannot be combined with, and why

    @staticmethod
    def unsuited(model: Model) -> str | None:
        """Why it cannot be used with this model, on the device it is on; None if it can."""
        return None

    @staticmethod
    def emulated(model: Model) -> str | None:
        """Why it is slow on the device the model is on, which only emulates its arithmetic; None if it is not."""
        return None

    @staticmethod
    def inactive(model: Model) -> str | None:
        """Why it changes nothing on the device the model is on, though it does no harm there; None if it acts."""
        return None

    @staticmethod
    def skip_in_autotune(model: Model) -> str | None:
        """Why `labkit.autotune` should not try it to save time; None if it should."""
        return None
