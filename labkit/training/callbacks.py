"""Callbacks: what a program of yours can do while `labkit.fit` trains, for example log into Weights & Biases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from torch import Tensor

from labkit import ranks
from labkit.errors import LabkitError, TrainingError, check_overrides
from labkit.training.run import Run


class Callback:
    """Override the methods you need, and pass an object of your class in ``labkit.fit(callbacks=[...])``.

    Callbacks are called in their order, under torchrun by rank 0 alone. If one raises an error, no other is called
    until `on_end`. The run is saved first, and then the error goes on to the caller of `labkit.fit`.
    """

    def on_start(self, run: Run) -> None:
        """Before the first step; `run.done` is above 0 if the run resumes."""

    def on_report(self, run: Run) -> None:
        """After each look at the losses: those of all `run.done` steps are in `run.losses`."""

    def on_sample(self, run: Run, grid: Tensor) -> None:
        """After each sample; `grid` holds the sample pictures, a ``uint8`` tensor of shape (3, H, W)."""

    def on_save(self, run: Run, path: Path) -> None:
        """After the checkpoint was written; `path` is its file."""

    def on_end(self, run: Run) -> None:
        """At the end, also if the run ends by an error or by Ctrl-C. All that can be saved has been."""


class OnReport(Callback):
    """A function that is called with the run after each look at the losses."""

    def __init__(self, function: Callable[[Run], None]):
        self.function = function

    def on_report(self, run: Run) -> None:
        self.function(run)


class Watchers(Callback):
    """The callbacks of a run, as a context: `on_start` is called when it begins, and `on_end` when it ends.

    Attributes:
        error: the first error of a callback; the loop saves the run, and calls `raise_error`.
    """

    def __init__(self, run: Run, callbacks: Sequence[Callback]):
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise LabkitError(
                    f"callbacks={callback!r}: each needs to be an object of a class derived from labkit.Callback. A "
                    "function can be passed as on_report."
                )
            hooks = [name for name in vars(Callback) if name.startswith("on_")]
            check_overrides(type(callback), hooks, (Callback,), "callback")
        self.run = run
        self.callbacks = list(callbacks) if ranks.number() == 0 else []
        self.error: BaseException | None = None

    def __enter__(self) -> Watchers:
        self.on_start(self.run)
        if self.error is not None:  # nothing is unsaved yet
            self._end(during_error=True)
            raise self.error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(during_error=error is not None)

    def on_start(self, run: Run) -> None:
        self._tell(lambda callback: callback.on_start(run))

    def on_report(self, run: Run) -> None:
        self._tell(lambda callback: callback.on_report(run))

    def on_sample(self, run: Run, grid: Tensor) -> None:
        self._tell(lambda callback: callback.on_sample(run, grid))

    def on_save(self, run: Run, path: Path) -> None:
        self._tell(lambda callback: callback.on_save(run, path))

    def raise_error(self) -> None:
        """Raises the error of a callback, if there was one; of several ranks on each of them."""
        said = ranks.first(None if self.error is None else str(self.error) or type(self.error).__name__)
        if self.error is not None:
            raise self.error
        if said is not None:
            raise TrainingError(said)

    def _tell(self, tell: Callable[[Callback], None]) -> None:
        try:
            for callback in self.callbacks if self.error is None else []:
                tell(callback)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.error = error

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
