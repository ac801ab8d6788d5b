"""Callbacks: what a program of yours can do while `labkit.fit` trains, for example log into Weights & Biases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from labkit import ranks
from labkit.errors import LabkitError, TrainingError, check_overrides
from labkit.files import link
from labkit.training import checkpoints
from labkit.training.run import Run
from labkit.training.samples import sample_file


class Callback:
    """Override the methods you need, and pass an object of your class in ``labkit.fit(callbacks=[...])``.

    Callbacks are called in their order, under torchrun by rank 0 alone. If one raises an error, no other is called
    until `on_end`. The run is saved first, and then the error goes on to the caller of `labkit.fit`.
    """

    def on_start(self, run: Run) -> None:
        """Before the first step; `run.done` is above 0 if the run resumes."""

    def on_step(self, run: Run) -> None:
        """After each step; its losses come with the next report."""

    def on_report(self, run: Run) -> None:
        """After each look at the losses: those of all `run.done` steps are in `run.losses`."""

    def on_sample(self, run: Run, grid: Tensor) -> None:
        """After each sample; `grid` holds the sample pictures, a ``uint8`` tensor of shape (3, H, W)."""

    def on_save(self, run: Run, path: Path) -> None:
        """After the checkpoint was written; `path` is its file."""

    def on_end(self, run: Run) -> None:
        """At the end, also if the run ends by an error or by Ctrl-C. All that can be saved has been."""

    def saves(self, run: Run) -> bool:
        """Whether to look at samples and to save after this step in any case. Every rank asks, all get one answer."""
        return False


class OnReport(Callback):
    """A function that is called with the run after each look at the losses."""

    def __init__(self, function: Callable[[Run], None]):
        self.function = function

    def on_report(self, run: Run) -> None:
        self.function(run)


class KeepEvery(Callback):
    """Keeps the checkpoint of every `steps`-th step for good, whole and with its sample grid.

    They are ``kept/<step>.pt`` and ``.png`` in the run's folder; `labkit.load_model` takes the step.
    """

    def __init__(self, steps: int):
        if steps < 1:
            raise LabkitError(f"KeepEvery({steps}): a number of steps is needed, at least 1.")
        self.steps = steps

    def saves(self, run: Run) -> bool:
        return run.folder is not None and run.done > 0 and run.done % self.steps == 0

    def on_start(self, run: Run) -> None:
        if run.done == run.saved:
            self._keep(run)  # a kill may have come between the checkpoint and this

    def on_save(self, run: Run, path: Path) -> None:
        self._keep(run)

    def _keep(self, run: Run) -> None:
        if run.folder is None or not self.saves(run):
            return
        kept = checkpoints.kept_file(run.folder, run.done)
        newest = {kept: run.folder / checkpoints.FILE, kept.with_suffix(".png"): sample_file(run, run.folder)}
        try:
            for target, source in newest.items():
                if source.exists() and not (target.exists() and target.samefile(source)):
                    link(source, target)
        except (LabkitError, OSError) as error:
            warnings.warn(f"step {run.done} is not kept: {error}", stacklevel=2)


class Watchers:
    """The callbacks of a run, as a context: `on_start` is called when it begins, and `on_end` when it ends.

    Attributes:
        error: the first error of a callback, or of the pictures; the loop saves the run, and calls `raise_error`.
    """

    def __init__(self, run: Run, callbacks: Sequence[Callback | Callable[[Run], None]]):
        self.run = run
        self.all = [one if isinstance(one, Callback) else OnReport(_function(one)) for one in callbacks]
        for callback in self.all:
            hooks = [name for name in vars(Callback) if not name.startswith("_")]
            check_overrides(type(callback), hooks, (Callback,), "callback")
        self.callbacks = self.all if ranks.number() == 0 else []
        self.error: BaseException | None = None

    def __enter__(self) -> Watchers:
        self.tell("on_start")
        if self.error is not None:  # nothing is unsaved yet
            self._end(during_error=True)
            raise self.error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(during_error=error is not None)

    def tell(self, method: str, *more: Any) -> None:
        """Calls a method of each callback."""
        try:
            for callback in self.callbacks if self.error is None else []:
                getattr(callback, method)(self.run, *more)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.error = error

    def saves(self) -> bool:
        """Whether a callback wants this step saved; the same on every rank."""
        return any(callback.saves(self.run) for callback in self.all)

    def raise_error(self) -> None:
        """Raises the error of a callback, if there was one; of several ranks on each of them."""
        said = ranks.first(None if self.error is None else str(self.error) or type(self.error).__name__)
        if self.error is not None:
            raise self.error
        if said is not None:
            raise TrainingError(said)

    def _end(self, during_error: bool) -> None:
        """Lets every callback end. Their errors do not hide the one that ended the run."""
        errors = []
        for callback in self.callbacks:
            try:
                callback.on_end(self.run)
            except Exception as error:
                errors.append(error)
        for hidden in errors if during_error else errors[1:]:
            warnings.warn(f"on_end of a callback: {type(hidden).__name__}: {hidden}", stacklevel=2)
        if errors and not during_error:
            raise errors[0]


def _function(given: Any) -> Callable[[Run], None]:
    if isinstance(given, type) or not callable(given):
        raise LabkitError(
            f"callbacks={given!r}: each needs to be a function of the run, or an object of a class derived from "
            "labkit.Callback."
        )
    return given
