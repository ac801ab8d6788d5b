"""The training step of a GAN, and its seams: the places where a speed-up changes how, never what, is computed.

Algorithm (Zhu et al. 2017, section 4, in the order of its public reference):

    for each player in turn (CycleGAN: the generators, then the discriminators):
        compute the player's losses          `losses`, through `one_cycle`, `both_cycles`, `both`, `recall`, `judge`
        differentiate their sum              `backward`
        let the player's optimiser step      `update`

A speed-up is a class that overrides one of these seams and calls `super()`; `labkit.make_step` stacks any number
of them on `Step`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from labkit.errors import DataError
from labkit.models.pool import Pool


class Cycle(NamedTuple):
    """What one round trip produced; each (B, 3, H, W) in [-1, 1]."""

    fake: Tensor  # translated
    back: Tensor  # translated and translated back
    same: Tensor | None  # a picture of the target domain, translated: it should not change


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
        DataError: the batch does not fit the networks, or (seen on the first call only) leaves [-1, 1].
    """

    def __init__(self, model: nn.Module, lr: float | None = None, betas: tuple[float, float] = (0.5, 0.999)):
        self.model = model
        self.players = model.players()
        self.lr = {player: own if lr is None else lr for player, own in model.learning_rates().items()}
        self.optimizers = self.build(betas)
        self._range_checked = False

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
        self.check(real_a, real_b)
        batch = {"real_a": real_a, "real_b": real_b}
        losses = {}
        for player in self.players:
            losses |= self.learn(player, batch)
            with record_function(f"labkit: {player} optimizer"):
                self.update(player)
        return {name: losses[name] for name in self.model.loss_names if name in losses}

    # ---- the seams

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        """An optimiser for each player."""
        return {
            player: torch.optim.Adam(weights, lr=self.lr[player], betas=betas, **self.adam_options())
            for player, weights in self.players.items()
        }

    def adam_options(self) -> dict[str, bool]:
        """How Adam computes: keyword arguments of `torch.optim.Adam`."""
        return {}

    def one_cycle(self, go: nn.Module, back: nn.Module, real: Tensor, other: Tensor | None) -> Cycle:
        """There and back again, and `other`, which already is where `go` leads."""
        fake = go(real)
        return Cycle(fake, back(fake), None if other is None else go(other))

    def both_cycles(self, model: nn.Module, real_a: Tensor, real_b: Tensor) -> tuple[Cycle, Cycle]:
        """A -> B -> A and B -> A -> B; the identity pictures only where the model weighs them."""
        other_b, other_a = (real_b, real_a) if model.lambda_identity else (None, None)
        return (
            self.one_cycle(model.G_A, model.G_B, real_a, other_b),
            self.one_cycle(model.G_B, model.G_A, real_b, other_a),
        )

    def recall(self, pool: Pool, fake: Tensor) -> Tensor:
        """As many fakes as are new, some of them earlier ones out of the pool."""
        return pool(fake)

    def judge(self, discriminator: nn.Module, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The verdicts on real pictures and on fakes."""
        return self.both(discriminator, real, fake)

    def both(self, network: nn.Module, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Two batches of equal size through the same network."""
        return network(first), network(second)

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms that `player` lowers, by name."""
        return self.model.losses(player, self, batch)

    def backward(self, loss: Tensor, player: str) -> None:
        """Gradients of `player`'s weights, and of no others: the rest of the networks stands still."""
        loss.backward(inputs=self.players[player])

    def learn(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Losses and gradients of one player on one batch."""
        with record_function(f"labkit: {player} forward"):
            losses = self.losses(player, batch)
        with record_function(f"labkit: {player} backward"):
            self.backward(sum(losses.values()), player)
        return {name: loss.detach() for name, loss in losses.items()}

    def update(self, player: str) -> None:
        """One step of the player's optimiser."""
        self.optimizers[player].step()
        self.optimizers[player].zero_grad()

    # ---- around the seams

    def check(self, real_a: Tensor, real_b: Tensor) -> None:
        """Raises `DataError` if the batch does not fit; its range is looked at once, since that makes the host wait."""
        self.model.check_batch(real_a, real_b)
        if self._range_checked:
            return
        for name, pictures in (("real_a", real_a), ("real_b", real_b)):
            low, high = (bound.item() for bound in pictures.aminmax())
            if not (-1.001 <= low and high <= 1.001):
                raise DataError(
                    f"{name} runs from {low:g} to {high:g}; the networks expect [-1, 1]. "
                    "labkit.to_float turns uint8 pictures into that range."
                )
        self._range_checked = True

    def scale_lr(self, factor: float) -> None:
        """Sets every learning rate to `factor` times the one the step was made with."""
        for player, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.lr[player] * factor

    def state_dict(self) -> dict:
        """Networks, optimisers and pools: what a run needs to go on as if it had never stopped."""
        return {
            "model": self.model.state_dict(),
            "optimizers": {player: optimizer.state_dict() for player, optimizer in self.optimizers.items()},
            "pools": {name: pool.state_dict() for name, pool in self.model.pools.items()},
        }

    def load_state_dict(self, state: dict) -> None:
        """Takes over what `state_dict` of a step over the same model gave, whatever its speed-ups."""
        self.model.load_state_dict(state["model"])
        for player, optimizer in self.optimizers.items():
            _load_adam(optimizer, state["optimizers"][player])
        device = next(self.model.parameters()).device
        for name, pool in self.model.pools.items():
            pool.load_state_dict(state["pools"][name], device)


def _load_adam(adam: torch.optim.Adam, state: dict) -> None:
    """Takes over learning rate, count of steps and moments, but not how, nor on which device, another Adam computed."""
    how = {option: adam.defaults[option] for option in ("fused", "foreach", "capturable")}
    adam.load_state_dict({**state, "param_groups": [{**group, **how} for group in state["param_groups"]]})
    for weight, kept in adam.state.items():
        if not (how["fused"] or how["capturable"]):
            kept["step"] = kept["step"].cpu()  # on a GPU the host would wait for it in every step
        for moment in ("exp_avg", "exp_avg_sq"):  # fused Adam takes for granted that they lie as the weight does
            kept[moment] = torch.empty_like(weight).copy_(kept[moment])
