"""The folder of a run: locked while it trains, its checkpoints written, and the run resumed from them."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from labkit import ranks
from labkit.errors import CheckpointError, DivergedError, LabkitError
from labkit.files import check_folder, link, locked
from labkit.model import Model
from labkit.training import checkpoints
from labkit.training.run import Run
from labkit.training.samples import sample_file

RETRY = 60  # seconds, at most, between two attempts to save on a full disk


class Keeper:
    """Saves a run into its folder, and resumes it from there. Without a folder it does nothing.

    Args:
        run: where it stands is set by `resume`.
        batches: the settings of its batches; a checkpoint with others is not resumed.
        minutes: between two checkpoints.
        keep_every: steps between two checkpoints that are kept; None keeps the newest only.
        allow_new_data: whether a checkpoint with other numbers of pictures is resumed, too.
    """

    def __init__(
        self,
        run: Run,
        batches: dict[str, Any],
        minutes: float,
        keep_every: int | None = None,
        allow_new_data: bool = False,
    ):
        self.run, self.batches, self.minutes, self.keep_every = run, batches, minutes, keep_every
        self.allow_new_data = allow_new_data
        self.due_at = time.monotonic() + 60 * minutes
        self.saved = 0  # the step of the newest checkpoint; 0 if there is none
        self.failed = False  # whether the disk did not take the last one

    def resume(self, stack: ExitStack) -> None:
        """Makes the run's folder, or continues the run from the checkpoint in it.

        While the contexts of `stack` last, no other run may use the folder.
        """
        run = self.run
        if run.folder is None:
            return
        try:
            (run.folder / "samples").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabkitError(
                f"{run.folder}: this folder cannot be made ({error.strerror}). Name another one."
            ) from error
        if ranks.number() == 0:
            stack.enter_context(locked(run.folder))
        if (run.folder / checkpoints.FILE).exists():
            self._load(run.folder)
            if ranks.number() == 0 and self.keeps():
                self._keep(run.folder)  # a kill may have come between the checkpoint and this

    def _load(self, folder: Path) -> None:
        run, device = self.run, next(self.run.model.parameters()).device
        state = checkpoints.load(folder, device)
        check_model(folder, state, run.model)
        saved = state["batches"]
        if self.allow_new_data:
            saved = saved | {"pictures": self.batches["pictures"]}
        advice = " If pictures were added or taken away, go on with those there are now: --allow-new-data, or"
        advice = f"{advice} allow_new_data=True." if saved["pictures"] != self.batches["pictures"] else ""
        checkpoints.check_settings(folder, "run", saved, self.batches, advice)
        try:
            run.step.load_state_dict(state["step"])
        except (RuntimeError, ValueError) as error:  # a network of one's own may have other layers, though of this name
            raise CheckpointError(
                f"{folder / checkpoints.FILE}: the weights are of other networks ({checkpoints.first_line(error)}). "
                "Use the same networks to resume, or another folder to start again."
            ) from error
        except LabkitError as error:
            raise CheckpointError(f"{folder / checkpoints.FILE}: {error}") from error
        run.done = self.saved = state["done"]
        rates = state.get("rates", dict.fromkeys(run.step.lr_now, torch.empty(0)))  # new in labkit 0.2.0
        run.losses, run.rates = (
            {name: [torch.nan] * (run.done - len(values)) + values.tolist() for name, values in history.items()}
            for history in (state["losses"], rates)
        )
        torch.set_rng_state(state["random"]["cpu"].cpu())
        if device.type == "cuda" and state["random"]["cuda"] is not None:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu())

    def late(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return self.run.folder is not None and time.monotonic() >= self.due_at

    def save(self, last: bool) -> Path | None:
        """Writes the checkpoint. Every rank has to call this, although rank 0 alone writes.

        A disk that does not take it does not end the run: the checkpoint before is kept, and another one is tried soon.

        Args:
            last: whether this is the run's last chance.

        Returns:
            the file, where it was written.

        Raises:
            CheckpointError: it was the last chance, and the disk did not take it.
            DivergedError: a weight is not finite.
        """
        self.due_at = time.monotonic() + 60 * self.minutes
        folder = self.run.folder
        if folder is None:
            return None
        state = self._state()
        if ranks.number() > 0:
            return None
        try:
            checkpoints.save(state, folder)
        except DivergedError:
            raise
        except CheckpointError as error:
            self._not_saved(error, last)
            return None
        self.saved, self.failed = self.run.done, False
        if self.keeps():
            self._keep(folder)
        return folder / checkpoints.FILE

    def _not_saved(self, error: CheckpointError, last: bool) -> None:
        at = f"The newest checkpoint is of step {self.saved}" if self.saved else "There is no checkpoint so far"
        if last:
            start = f"Run the same again to go on from step {self.saved}" if self.saved else "Nothing was saved"
            raise CheckpointError(f"step {self.run.done}: {error} {start}.") from error
        if self.keeps():
            at += f", and step {self.run.done} is not kept"
        if not self.failed or self.keeps():
            warnings.warn(
                f"step {self.run.done}: {error} Training goes on, and tries to save again soon. {at}.", stacklevel=2
            )
        self.failed = True
        self.due_at = time.monotonic() + min(60 * self.minutes, RETRY)

    def keeps(self) -> bool:
        """Whether the checkpoint of this step is kept."""
        return self.keep_every is not None and self.run.done > 0 and self.run.done % self.keep_every == 0

    def _keep(self, folder: Path) -> None:
        """Keeps the newest checkpoint, with its sample grid if there is one."""
        kept = checkpoints.kept_file(folder, self.run.done)
        newest = {kept: folder / checkpoints.FILE, kept.with_suffix(".png"): sample_file(self.run, folder)}
        try:
            for target, source in newest.items():
                if source.exists() and not (target.exists() and target.samefile(source)):
                    link(source, target)
        except (LabkitError, OSError) as error:
            warnings.warn(f"step {self.run.done} is not kept: {error}", stacklevel=2)

    def _state(self) -> dict[str, Any]:
        run, on_gpu = self.run, next(self.run.model.parameters()).is_cuda
        return {
            "kind": run.model.kind,
            "settings": run.model.settings,
            "batches": self.batches,
            "step": run.step.state_dict(),
            "done": run.done,
            "losses": _tensors(run.losses),
            "rates": _tensors(run.rates),
            "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if on_gpu else None},
        }


def look_first(folder: Path, model: Model, batches: dict[str, Any]) -> None:
    """Raises errors now that `labkit.fit` would raise after minutes of reading pictures.

    Args:
        folder: of the run, which is made if it is missing.
        model: that will be trained.
        batches: those settings of the batches that are known without the pictures.

    Raises:
        LabkitError: nothing can be written to the folder, or another run trains into it.
        CheckpointError: the checkpoint in it is damaged, or has other settings.
    """
    check_folder(folder)
    with locked(folder):
        if (folder / checkpoints.FILE).exists():
            state = checkpoints.load(folder)
            check_model(folder, state, model)
            checkpoints.check_settings(folder, "run", {name: state["batches"].get(name) for name in batches}, batches)


def check_model(folder: Path, state: dict[str, Any], model: Model) -> None:
    """Raises `CheckpointError` if a checkpoint is of another model."""
    checkpoints.check_settings(folder, "model", {"kind": state["kind"]}, {"kind": model.kind})
    checkpoints.check_settings(folder, "model", state["settings"], model.settings)


def _tensors(history: dict[str, list[float]]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in history.items()}


def kept(run: Run) -> str:
    """Says, for the end of an error, where the run can go on from."""
    if run.folder is None or not (run.folder / checkpoints.FILE).exists():
        return " Nothing was saved before it."
    return f" The last good checkpoint is kept in {run.folder}."
