"""Modules apart: each process trains one player of a `DeviationGAN`, with weights of the others that grow old.

After an article that puts its three modules on three machines, which exchange weights through shared storage once an
epoch. `apart` makes the step of one of these processes: ranks under torchrun, or jobs that share a folder.

A player's losses take the weights of all players as they were before the step: each one's update comes after the fakes
that the next one needs. So with an exchange before every step the ranks compute what one process does, the same numbers
in the same order. Two choices of the model are different. With judged="pictures" the translator's losses need the
decoder after its update, and here they get it before. With the exchange every n steps, n > 1, weights of others are up
to n - 1 steps old.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
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
from labkit.training import checkpoints
from labkit.variants.registry import SPEEDUPS, make_step, overridden
from labtrace.errors import check_known
from labtrace.files import atomic_write

FILE = "weights.pt"


class StalePartnerWarning(UserWarning):
    """A job that trains another module has not written its weights for long."""


def apart(
    model: Model,
    *speedups: str,
    exchange_every: int,
    lr: float | Mapping[str, float] | None = None,
    module: str | None = None,
    folder: Path | str | None = None,
    patience_s: float = 600.0,
) -> Step:
    """The step of a process that trains one module of a `DeviationGAN` and takes the others from other processes.

    Under torchrun there has to be a rank for each module, and all exchange weights at the same step. With `module` and
    `folder` this process is a job of its own: at each exchange it writes its weights to `folder` and takes those that
    the other jobs have written last, and waits for none of them.

    All processes need the same pictures and the same seed. ``step.state_dict()`` is that of the whole model, so its
    checkpoints load anywhere. Those of a job have the other modules as it saw them last.

    Args:
        model: a `DeviationGAN` of stage "joint".
        speedups: names from `labkit.speedups()` of those that do not change the order of the players.
        exchange_every: steps from one exchange to the next.
        lr: as for `labkit.make_step`.
        module: "autoencoder", "translator" or "discriminator", for a job of its own.
        folder: one that the jobs share. One job for each module may write there.
        patience_s: seconds after which a job whose weights are still the same is named in a `StalePartnerWarning`.

    Raises:
        LabkitError: model, speed-ups or numbers do not fit, or there is not a rank for each module.
    """
    if not isinstance(model, DeviationGAN) or model.stage != "joint":
        raise LabkitError("Only the modules of a DeviationGAN of stage 'joint' can be trained apart.")
    if exchange_every < 1:
        raise LabkitError(f"exchange_every={exchange_every}: give a number of steps, 1 or more.")
    for name in speedups:
        check_known("speed-up", name, SPEEDUPS)
        if seams := {"__call__", "run"} & set(overridden(SPEEDUPS[name])):
            raise LabkitError(f"speed-up {name!r} overrides {', '.join(seams)}, which runs all players: leave it out.")
    players, settings = list(model.players()), dict[str, Any](exchange_every=exchange_every)
    if folder is None:
        if ranks.count() != len(players):
            raise LabkitError(
                f"{', '.join(players)}: there has to be a process for each of them, and there are {ranks.count()}. "
                f"Start them with torchrun --nproc-per-node={len(players)}, or give the module and folder of this job."
            )
        step_class = type("RanksApart", (RanksApart,), settings | dict(module=players[ranks.number()]))
    else:
        check_known("module", module, players)
        settings |= dict(module=module, folder=Path(folder), patience_s=patience_s)
        step_class = type("JobsApart", (JobsApart,), settings)
    return make_step(model, step_class, *speedups, lr=lr)


class Apart(Step):
    """Runs one player. Subclasses say how weights are exchanged.

    Attributes:
        module: the player that this process trains.
        exchange_every: steps from one exchange to the next.
        done: steps so far.
    """

    module: str
    exchange_every: int
    done = 0

    def run(self, batch: Batch) -> dict[str, Tensor]:
        if self.done % self.exchange_every == 0:
            with record_function(f"{RANGE}exchange"):
                self.exchange()
        self.done += 1
        if self.module == "discriminator":
            with record_function(f"{RANGE}translator forward"), torch.no_grad():
                self.losses("translator", batch)  # leaves in `batch` the fakes to judge
        losses = self.learn(self.module, batch)
        with record_function(f"{RANGE}{self.module} optimizer"):
            self.update(self.module)
        return losses

    def exchange(self) -> None:
        """Sends the weights of this module, and receives those of the others."""
        raise NotImplementedError

    def finish(self) -> None:
        self.exchange()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "apart": {"done": self.done, "before": {}}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        saved = state.get("apart", {"done": 0, "before": {}})  # else one process saved it: all weights are new
        self.done, trained_here = saved["done"], self.names_of(self.module)
        others = {name: weight for name, weight in saved["before"].items() if name not in trained_here}
        self.model.load_state_dict(others, strict=False)

    def names_of(self, player: str) -> set[str]:
        """The names of a player's weights in the model's state."""
        weights = {id(weight) for weight in self.players[player]}
        return {name for name, weight in self.model.named_parameters() if id(weight) in weights}


class RanksApart(Apart):
    """Each rank trains a module, and all exchange weights at the same step."""

    ranks = len(STAGES["joint"])
    loss_names: list[str] | None = None  # of all ranks

    def exchange(self) -> None:
        for rank, player in enumerate(self.players):
            for weight in self.players[player]:
                dist.broadcast(weight.detach(), rank)

    def run(self, batch: Batch) -> dict[str, Tensor]:
        losses = super().run(batch)
        if self.loss_names is None:
            self.loss_names = [name for names in ranks.gathered(list(losses)) for name in names]
        zero = torch.zeros_like(next(iter(losses.values())))
        values = torch.stack([losses.get(name, zero) for name in self.loss_names])
        dist.all_reduce(values)
        return dict(zip(self.loss_names, values.unbind(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole model, the same on every rank. Every rank has to ask for it."""
        players = list(self.players)
        everyone = dict(zip(players, ranks.gathered(super().state_dict()), strict=True))
        newest: dict[str, Tensor] = {}
        before: dict[str, Tensor] = {}  # as the other ranks see each module
        for player, other in zip(players, [*players[1:], players[0]], strict=True):
            newest |= {name: everyone[player]["model"][name] for name in self.names_of(player)}
            before |= {name: everyone[other]["model"][name] for name in self.names_of(player)}
        return {
            "model": {name: newest[name] for name in self.model.state_dict()},
            "optimizers": {player: state["optimizers"][player] for player, state in everyone.items()},
            "pools": everyone["discriminator"]["pools"],
            "apart": {"done": self.done, "before": before},
        }


class JobsApart(Apart):
    """A job that trains one module, and finds the others' weights in a folder.

    Attributes:
        folder: with a folder for each module.
        partners: steps that each other module had done when its weights were written, as far as they are known.
    """

    folder: Path
    patience_s: float

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.partners: dict[str, int] = {}
        self.changed = dict.fromkeys(set(self.players) - {self.module}, time.monotonic())
        self.ended: set[str] = set()
        return super().build(betas)

    def exchange(self, ended: bool = False) -> None:
        self.publish(ended)
        for player in self.changed:
            self.fetch(player)

    def finish(self) -> None:
        self.exchange(ended=True)

    def publish(self, ended: bool) -> None:
        """Writes this module's weights, whole or not at all."""
        weights = [weight.detach().cpu() for weight in self.players[self.module]]
        note = {"done": self.done, "ended": ended, "settings": self.model.settings, "weights": weights}
        with atomic_write(self.folder / self.module / FILE) as part:
            torch.save(note, part)

    def fetch(self, player: str) -> None:
        """Takes a player's weights, if there are newer ones, and says so if there have been none for long."""
        path = self.folder / player / FILE
        note = checkpoints.read(path) if path.exists() else None
        if note is not None and note["settings"] != self.model.settings:
            raise LabkitError(f"{path}: the job of {player} trains a model with other settings: {note['settings']}.")
        if note is not None and note["done"] != self.partners.get(player):
            with torch.no_grad():
                for weight, newer in zip(self.players[player], note["weights"], strict=True):
                    weight.copy_(newer)
            self.partners[player], self.changed[player] = note["done"], time.monotonic()
            if note["ended"]:
                self.ended.add(player)
        elif (waited := time.monotonic() - self.changed[player]) > self.patience_s and player not in self.ended:
            seen = f"its weights of step {self.partners[player]} are used" if note else "it has written none so far"
            warnings.warn(
                f"step {self.done}: no new weights of the {player} in {path.parent} for {waited:.0f} seconds; {seen}. "
                "Does its job still run?",
                StalePartnerWarning,
                stacklevel=2,
            )
            self.changed[player] = time.monotonic()  # not in every step
