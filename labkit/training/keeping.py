"""The folder of a run: locked while it trains, its checkpoints written, and the run resumed from them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from labkit import ranks
from labkit.data.batches import UnpairedData
from labkit.errors import CheckpointError, DivergedError, LabkitError
from labkit.files import check_folder, locked
from labkit.models.model import Model
from labkit.training import checkpoints
from labkit.training.run import Run


class Keeper:
    """Saves a run into its folder, and resumes it from there. Without a folder it does nothing.

    Args:
        run: where it stands is set by `resume`.
        batches: the settings of its batches; a checkpoint with others is not resumed.
        minutes: between two checkpoints.
    """

    def __init__(self, run: Run, batches: dict[str, Any], minutes: float):
        self.run, self.batches, self.minutes = run, batches, minutes
        self.due_at = time.monotonic() + 60 * minutes

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

    def _load(self, folder: Path) -> None:
        run, device = self.run, next(self.run.model.parameters()).device
        state = checkpoints.load(folder, device)
        check_model(folder, state, run.model)
        saved = state["batches"]
        advice = " If pictures were added or taken away, go on with those there are now: --allow-new-data, or"
        advice = f"{advice} labkit.accept_new_data." if saved["pictures"] != self.batches["pictures"] else ""
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
        run.done = run.saved = state["done"]
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

    def save(self) -> Path | None:
        """Writes the checkpoint. Every rank has to call this, although rank 0 alone writes.

        Returns:
            the file, where it was written.

        Raises:
            CheckpointError: the disk does not take it; the checkpoint before is kept.
            DivergedError: a weight is not finite.
        """
        self.due_at = time.monotonic() + 60 * self.minutes
        run = self.run
        if run.folder is None:
            return None
        state = self._state()
        if ranks.number() > 0:
            return None
        try:
            checkpoints.save(state, run.folder)
        except DivergedError:
            raise
        except CheckpointError as error:
            start = f"Run the same again to go on from step {run.saved}" if run.saved else "Nothing was saved"
            raise CheckpointError(f"step {run.done}: {error} {start}.") from error
        run.saved = run.done
        return run.folder / checkpoints.FILE

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


def accept_new_data(folder: Path | str, data: UnpairedData) -> None:
    """Lets the run in `folder` go on with `data` although pictures were added or taken away.

    The pictures of step k depend on the seed, on k and on the numbers of pictures alone. So the run goes on with the
    batches that a run with the new pictures has from this step on: the epoch under way may show some pictures twice and
    others not at all, and from the next one on each epoch shows all of them once.

    Raises:
        LabkitError: another run trains into the folder.
        CheckpointError: there is no checkpoint, or it cannot be read or written.
    """
    folder = Path(folder)
    with locked(folder):
        state = checkpoints.load(folder)
        if state["batches"]["pictures"] != data.settings["pictures"]:
            state["batches"]["pictures"] = data.settings["pictures"]
            checkpoints.save(state, folder)


def look_first(folder: Path, model: Model, batches: dict[str, Any]) -> None:
    """Checks the run's folder before the pictures are read, which may take minutes.

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
