"""A training run: the record of it that `labkit.fit` keeps, returns, saves, resumes, and shows to callbacks."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from labkit import ranks
from labkit.data.batches import UnpairedData
from labkit.errors import CheckpointError, LabkitError, TrainingError, explained
from labkit.locks import locked
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.training import checkpoints

USUAL_CAUSES = " Usual causes: too high a learning rate, or 16-bit arithmetic without loss scaling."


@dataclass
class Run:
    """A training run: its progress, and every loss of every step so far.

    Attributes:
        step: the step that is trained with. Its `model` is the run's.
        steps: the step to train up to.
        data: the pictures that it trains on.
        folder: of checkpoint and sample pictures, or None if neither is kept.
        batches: the settings of its batches. A checkpoint with other settings is not resumed. Of pictures in files
            their names, sizes and some content count, and not how many there are or what their folder is called.
        done: steps done, those before resuming included.
        saved: the step of the newest checkpoint, or 0 if there is none.
        losses: by name, one number for each step up to the last report, with NaN for steps without a loss of this name.
        ema: how much each step keeps of `average`. 0 without one.
        average: a copy of the model, whose weights are the exponential moving average of the model's, or None.
        callbacks: the states that callbacks want kept, by name.
        stopping: whether `stop` was called.
    """

    step: Step
    steps: int
    data: UnpairedData = field(repr=False)
    folder: Path | None = None
    batches: dict[str, Any] = field(default_factory=dict)
    done: int = 0
    saved: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict, repr=False)
    pending: list[dict[str, Tensor]] = field(default_factory=list, repr=False)
    ema: float = 0.0
    average: Model | None = field(default=None, repr=False)
    callbacks: dict[str, Any] = field(default_factory=dict, repr=False)
    stopping: bool = False

    def __post_init__(self) -> None:
        if self.ema:
            self.average = copy.deepcopy(self.model)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.step.model

    @property
    def translating(self) -> Model:
        """The model to translate with: the average of the weights, or where there is none the model itself."""
        return self.model if self.average is None else self.average

    def stop(self) -> None:
        """For callbacks: ends the run after this step. It is saved, and `labkit.fit` returns as after the last step.

        Several ranks end together, one or two steps later. The same call of `labkit.fit` continues from there.
        """
        self.stopping = True

    def add(self, losses: dict[str, Tensor]) -> None:
        """Counts a step. Its losses stay on the device until the next report, so that no step waits for it."""
        self.done += 1
        self.pending.append(losses)
        if self.average is not None:
            # Early steps keep less, or the initial weights would stay for thousands of steps (as in TensorFlow's
            # ExponentialMovingAverage, num_updates). Statistics of batch norm are means already.
            keep = min(self.ema, (1 + self.done) / (10 + self.done))
            get_ema_multi_avg_fn(keep)(list(self.average.parameters()), list(self.model.parameters()), self.done)
            for mean, now in zip(self.average.buffers(), self.model.buffers(), strict=True):
                mean.copy_(now)

    def collect_losses(self) -> None:
        """Adds the losses of the steps since the last call to `losses`: the loop's only wait for the device.

        Raises:
            TrainingError: a loss is not finite. The losses of the steps before it are added.
        """
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        values = iter(torch.stack([loss for losses in pending for loss in losses.values()]).tolist())
        for before, losses in enumerate(pending, start=self.done - len(pending)):
            of_step = {name: next(values) for name in losses}
            if diverged := [name for name, value in of_step.items() if not math.isfinite(value)]:
                raise TrainingError(
                    f"step {before + 1}: {', '.join(diverged)} is no longer a finite number, so training stopped."
                    f"{self.resume_hint()}{USUAL_CAUSES}"
                )
            for name in {**self.losses, **of_step}:  # in the order in which they came
                self.losses.setdefault(name, [torch.nan] * before).append(of_step.get(name, torch.nan))

    def resume_hint(self) -> str:
        """The end of an error's message: the step from which the run can continue."""
        if not self.saved:
            return " Nothing was saved."
        return f" The last good checkpoint is kept in {self.folder}: run it again to continue from step {self.saved}."


@contextmanager
def resumed(run: Run) -> Iterator[None]:
    """Inside, the run's folder is locked, and the run continues from the checkpoint in it, if there is one.

    Raises:
        LabkitError: nothing can be written there, another run trains into the folder, the checkpoint is of other
            optimisers, or the ranks differ in the run's settings.
        CheckpointError: the checkpoint is damaged, or of another model or other batches.
    """
    with ExitStack() as stack:
        if run.folder is not None and ranks.number() == 0:
            stack.enter_context(locked(run.folder))
        if run.folder is not None and (run.folder / checkpoints.FILE).exists():
            _load(run, run.folder)
        ranks.all_equal({"done": run.done, "steps": run.steps, **run.batches, **run.model.settings})
        yield


def _load(run: Run, folder: Path) -> None:
    device = next(run.model.parameters()).device
    state = checkpoints.load(folder, device)
    checkpoints.check_settings(folder, "model", {"kind": state["kind"]}, {"kind": run.model.kind})
    checkpoints.check_settings(folder, "model", state["settings"], run.model.settings)
    files = state.get("files", [])  # of an older checkpoint, or of data that are no files, nothing
    by_file = ("data", "pictures") if files and run.data.files else ()
    batches = state["batches"] | {name: run.batches[name] for name in by_file}
    checkpoints.check_settings(folder, "run", batches, run.batches)
    if state["done"] > run.steps:
        checkpoints.check_settings(folder, "run", {"steps done": state["done"]}, {"steps done": run.steps})
    if by_file:
        checkpoints.check_pictures(folder, files, run.data.files)
    with explained(
        f"{folder}: the weights are of other networks", "Give the same, or another folder.", CheckpointError
    ):
        run.step.load_state_dict(state["step"])  # of a custom network the settings are only its name
    if run.average is not None:
        run.average.load_state_dict(state["average"])
    run.done = run.saved = state["done"]
    run.losses = {name: values.tolist() for name, values in state["losses"].items()}
    run.callbacks = state.get("callbacks", {})
    torch.set_rng_state(state["random"]["cpu"].cpu())
    if device.type == "cuda" and state["random"]["cuda"] is not None:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu())


def save_run(run: Run) -> None:
    """Writes the checkpoint of a run that has a folder. Every rank has to call this, although rank 0 alone writes.

    Raises:
        CheckpointError: it cannot be written. The checkpoint before is kept.
        TrainingError: a loss or a weight is not finite. The checkpoint before is kept.
    """
    run.collect_losses()
    if run.folder is None:
        return
    state = state_of(run)
    if ranks.number() == 0:
        try:
            checkpoints.write_checkpoint(state, run.folder)
        except LabkitError as error:
            raise type(error)(f"step {run.done}: {error}{run.resume_hint()}") from error
    run.saved = run.done


def state_of(run: Run) -> dict[str, Any]:
    """What the checkpoint of a run holds. Every rank has to ask for it."""
    on_gpu = next(run.model.parameters()).is_cuda
    return {
        "kind": run.model.kind,
        "settings": run.model.settings,
        "batches": run.batches,
        "files": run.data.files,
        "step": run.step.state_dict(),
        **({} if run.average is None else {"average": run.average.state_dict()}),
        "done": run.done,
        "callbacks": run.callbacks,
        "losses": {name: torch.tensor(values, dtype=torch.float64) for name, values in run.losses.items()},
        "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if on_gpu else None},
    }
