"""Modules apart: each process trains one player of a `DeviationGAN`, with weights of the others that grow old.

After an article that puts its three modules on three machines, which exchange weights through shared storage once an
epoch. `apart` makes the step of one of these processes: ranks under torchrun, or jobs that share a folder.

A player's losses take the weights of all players as they were before the step: each one's update comes after the fakes
that the next one needs. So with an exchange before every step the ranks compute what one process does, the same numbers
in the same order. Two choices of the model are different: with judged="pictures" the translator's losses need the
decoder after its update, and here they get it before; and with the exchange every n steps, n > 1, weights of others are
up to n - 1 steps old.
"""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from labkit import ranks
from labkit.errors import LabkitError, check_known
from labkit.files import atomic_write, locked
from labkit.models.deviation import STAGES, DeviationGAN
from labkit.models.model import Model
from labkit.models.step import RANGE, Batch, Step
from labkit.parallel.group import on_host
from labkit.training import checkpoints
from labkit.variants.registry import SPEEDUPS, make_step, overridden

FILE = "weights.pt"


class StalePartnerWarning(UserWarning):
    """A job that trains another module has not written its weights for long."""


def apart(
    model: Model,
    *speedups: str,
    exchange_every: int,
    lr: float | None = None,
    module: str | None = None,
    folder: Path | str | None = None,
    patience_s: float = 600.0,
) -> Step:
    """The step of a process that trains one module of a `DeviationGAN` and takes the others from other processes.

    Under torchrun there has to be a rank for each module, and all exchange weights at the same step. With `module` and
    `folder` this process is a job of its own: at each exchange it writes its weights to `folder` and takes those that
    the other jobs have written last, and waits for none of them.

    All processes need the same pictures and the same seed. ``step.state_dict()`` is that of the whole model, so its
    checkpoints load anywhere; those of a job have the other modules as it saw them last.

    Args:
        model: a `DeviationGAN` of stage "joint".
        speedups: names from `labkit.speedups()` of those that do not change the order of the players.
        exchange_every: steps from one exchange to the next.
        lr: as for `labkit.make_step`.
        module: "autoencoder", "translator" or "discriminator".
        folder: that the jobs share.
        patience_s: seconds after which a job whose weights are still the same is named in a `StalePartnerWarning`.

    Raises:
        LabkitError: model, speed-ups or numbers do not fit; there is not a rank for each module; another job trains
            this module through the folder, or nothing can be written there.
    """
    if not isinstance(model, DeviationGAN) or model.stage != "joint":
        raise LabkitError("Only the modules of a DeviationGAN of stage 'joint' can be trained apart.")
    if exchange_every < 1:
        raise LabkitError(f"exchange_every={exchange_every}: give a number of steps, 1 or more.")
    if (module is None) != (folder is None):
        raise LabkitError("A job of its own needs both: its module, and the folder that the jobs share.")
    for name in speedups:
        check_known("speed-up", name, SPEEDUPS)
        if seams := {"__call__", "run"} & set(overridden(SPEEDUPS[name])):
            raise LabkitError(f"speed-up {name!r} overrides {', '.join(seams)}, which runs all players: leave it out.")
    if module is None:
        if ranks.count() != len(model.players()):
            raise LabkitError(
                f"{', '.join(model.players())}: there has to be a process for each of them, and there are "
                f"{ranks.count()}. Start them with torchrun --nproc-per-node={len(model.players())}, or labkit train "
                f"--processes {len(model.players())}."
            )
        settings: dict[str, Any] = dict(module=list(model.players())[ranks.number()])
        kind: type[Apart] = RanksApart
    else:
        check_known("module", module, model.players())
        settings, kind = dict(module=module, folder=Path(folder or ""), patience_s=patience_s), JobsApart
    return make_step(
        model, type(kind.__name__, (kind,), settings | {"exchange_every": exchange_every}), *speedups, lr=lr
    )


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

    def own_names(self) -> set[str]:
        """The names of this module's weights in the model's state."""
        own = {id(weight) for weight in self.players[self.module]}
        return {name for name, weight in self.model.named_parameters() if id(weight) in own}


class RanksApart(Apart):
    """Each rank trains a module; all exchange weights at the same step."""

    ranks = len(STAGES["joint"])
    loss_names: list[str] | None = None  # of all ranks

    def exchange(self) -> None:
        for rank, player in enumerate(self.players):
            for weight in self.players[player]:
                dist.broadcast(weight.detach(), rank)

    def run(self, batch: Batch) -> dict[str, Tensor]:
        mine = super().run(batch)
        if self.loss_names is None:
            everyone: list[Any] = [None] * self.ranks
            dist.all_gather_object(everyone, list(mine))
            self.loss_names = [name for names in everyone for name in names]
        zero = torch.zeros_like(next(iter(mine.values())))
        values = torch.stack([mine.get(name, zero) for name in self.loss_names])
        dist.all_reduce(values)
        return dict(zip(self.loss_names, values.unbind(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole model, the same on every rank; every rank has to ask for it."""
        state = super().state_dict()
        everyone: list[Any] = [None] * self.ranks
        mine = {"optimizer": state["optimizers"][self.module], "model": state["model"], "names": self.own_names()}
        dist.all_gather_object(everyone, on_host({**mine, "pools": state["pools"]}))
        newest: dict[str, Tensor] = {}
        before: dict[str, Tensor] = {}  # as the other ranks see each module
        for rank, of_rank in enumerate(everyone):
            other = everyone[(rank + 1) % self.ranks]
            newest |= {name: of_rank["model"][name] for name in of_rank["names"]}
            before |= {name: other["model"][name] for name in of_rank["names"]}
        return {
            "model": {name: newest[name] for name in state["model"]},
            "optimizers": {name: one["optimizer"] for name, one in zip(self.players, everyone, strict=True)},
            "pools": everyone[list(self.players).index("discriminator")]["pools"],
            "apart": {"done": self.done, "before": before},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        saved = state.get("apart", {"done": 0, "before": {}})  # else one process saved it: all weights are new
        self.done, own = saved["done"], self.own_names()
        others = {name: weight for name, weight in saved["before"].items() if name not in own}
        self.model.load_state_dict(others, strict=False)


class JobsApart(Apart):
    """A job that trains one module, and finds the others' weights in a folder.

    Attributes:
        folder: with a folder for each module.
        partners: steps that each other module had done when its weights were written, as far as they are known.
    """

    folder: Path
    patience_s: float

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        (self.folder / self.module).mkdir(parents=True, exist_ok=True)
        self.holding = _hold(self.folder / self.module)
        self.partners: dict[str, int] = {}
        self.changed = dict.fromkeys(set(self.players) - {self.module}, time.monotonic())
        self.ended: set[str] = set()
        return super().build(betas)

    def exchange(self, ended: bool = False) -> None:
        self.give(ended)
        for player in self.changed:
            self.take(player)

    def finish(self) -> None:
        self.exchange(ended=True)

    def give(self, ended: bool) -> None:
        """Writes this module's weights, whole or not at all."""
        weights = [weight.detach().cpu() for weight in self.players[self.module]]
        note = {"done": self.done, "ended": ended, "settings": self.model.settings, "weights": weights}
        with atomic_write(self.folder / self.module / FILE) as part:
            torch.save(note, part)

    def take(self, player: str) -> None:
        """Takes a player's weights, if there are newer ones; says so if there have been none for long."""
        path = self.folder / player / FILE
        note = checkpoints.read(path) if path.exists() else None
        if note is not None and note["settings"] != self.model.settings:
            raise LabkitError(f"{path}: the job of {player} trains a model with other settings: {note['settings']}.")
        if note is not None and note["done"] != self.partners.get(player):
            with torch.no_grad():
                for weight, newer in zip(self.players[player], note["weights"], strict=True):
                    weight.copy_(newer)
            self.partners[player], self.changed[player] = note["done"], time.monotonic()
            self.ended |= {player} if note["ended"] else set()
        elif (waited := time.monotonic() - self.changed[player]) > self.patience_s and player not in self.ended:
            seen = f"its weights of step {self.partners[player]} are used" if note else "it has written none so far"
            warnings.warn(
                f"step {self.done}: no new weights of the {player} in {path.parent} for {waited:.0f} seconds; {seen}. "
                "Does its job still run?",
                StalePartnerWarning,
                stacklevel=2,
            )
            self.changed[player] = time.monotonic()  # not in every step

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "apart": {"done": self.done, "before": {}}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.done = state.get("apart", {"done": 0})["done"]


@cache
def _hold(folder: Path) -> ExitStack:
    """Takes the lock of a module's folder, which this process then holds until it ends, for each step that it makes."""
    stack = ExitStack()
    stack.enter_context(locked(folder))
    return stack
