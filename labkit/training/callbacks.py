"""Callbacks: logs, samples and the progress of `labkit.fit`, and methods for more, such as Weights & Biases."""

from __future__ import annotations

import csv
import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from labkit import ranks
from labkit.bars import bar
from labkit.data.batches import UnpairedData, to_float, to_uint8
from labkit.data.images import write_picture
from labkit.errors import DataError, LabkitError, TrainingError, check_overrides
from labkit.models.model import run_network
from labkit.settings import plain
from labkit.training import checkpoints
from labkit.training.run import Run
from labtrace.files import atomic_write

LOSSES = "losses.csv"
COLLAPSED = 0.1  # outputs are all alike if they differ by less than this share of their inputs' differences
SURE = 10.0  # a discriminator has won if over `JUDGED` steps the generator's loss is so many times its own ...
JUDGED = 200
EARLY = 1000  # ... in the first steps. In long runs that end well it often wins at last


class Callback:
    """Override the methods you need, and pass an object of your class in ``labkit.fit(callbacks=[...])``.

    Callbacks are called in their order, under torchrun by rank 0 only. `Run.stop` ends the run. If a callback raises an
    error, no other is called until `on_end`. The run is saved first, and then `labkit.fit` raises the error.
    """

    def on_start(self, run: Run) -> None:
        """Before the first step. `run.done` is above 0 if the run resumes."""

    def on_step(self, run: Run) -> None:
        """After each step. The next report has its losses."""

    def on_report(self, run: Run) -> None:
        """After each report: the losses of all `run.done` steps are in `run.losses`."""

    def on_sample(self, run: Run, grid: Tensor) -> None:
        """After each sample. `grid` holds the sample pictures, a ``uint8`` tensor of shape (3, H, W)."""

    def on_save(self, run: Run, path: Path) -> None:
        """After the checkpoint was written. `path` is its file."""

    def on_end(self, run: Run) -> None:
        """At the end, also after an error or Ctrl-C. Everything that can be saved has been saved."""

    def saves(self, run: Run) -> bool:
        """True if this step has to be sampled and saved. It is called on every rank, and must give the same answer."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to keep of this callback: tensors, arrays, numbers, texts, lists, and dicts of them."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back, before `on_start`, what `state_dict` gave: in a run that resumes, if the checkpoint has it."""


class OnReport(Callback):
    """A function that is called with the run after each report."""

    def __init__(self, function: Callable[[Run], None]):
        if isinstance(function, type) or not callable(function):
            raise LabkitError(f"callbacks={function!r}: give functions of the run, or objects of a labkit.Callback.")
        self.function = function

    def on_report(self, run: Run) -> None:
        self.function(run)


class Callbacks:
    """The callbacks of a run, as a context manager: it calls `on_start` when it begins, and `on_end` when it ends.

    Attributes:
        error: the first error of a callback or of the pictures. The loop saves the run, and calls `raise_error`.
    """

    def __init__(self, run: Run, callbacks: Sequence[Callback | Callable[[Run], None]]):
        self.run = run
        self.all = [each if isinstance(each, Callback) else OnReport(each) for each in callbacks]
        kinds = [type(each).__name__ for each in self.all]
        self.named = {f"{kind} {kinds[:place].count(kind) + 1}": self.all[place] for place, kind in enumerate(kinds)}
        for callback in self.all:
            hooks = [name for name in vars(Callback) if not name.startswith("_")]
            check_overrides(type(callback), hooks, (Callback,), "callback")
        self.called = self.all if ranks.number() == 0 else []
        self.error: BaseException | None = None

    def __enter__(self) -> Callbacks:
        for name, callback in self.named.items():
            if name in self.run.callbacks:
                callback.load_state_dict(self.run.callbacks[name])
        self.tell("on_start")
        self.keep_states()  # a state that no checkpoint can hold is said before the first step
        return self

    def __exit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        for callback in self.called:
            try:
                callback.on_end(self.run)
            except Exception as error:
                self.error = self.error or error  # the first is the cause

    def tell(self, method: str, *more: Any) -> None:
        """Calls a method of each callback, until one raises an error."""
        try:
            for callback in self.called if self.error is None else []:
                getattr(callback, method)(self.run, *more)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.error = error

    def keep_states(self) -> None:
        """Puts the callbacks' states into the run, for its checkpoint. The first error is raised later."""
        for name, callback in self.named.items() if self.called else []:
            try:
                checkpoints.check_reads(state := callback.state_dict(), name)
                self.run.callbacks |= {name: state} if state else {}
            except Exception as error:
                self.error = self.error or error

    def saves(self) -> bool:
        """True if a callback wants this step saved, the same on every rank."""
        return any(callback.saves(self.run) for callback in self.all)

    def raise_error(self) -> None:
        """Raises the error of a callback, if there was one, on every rank."""
        text = ranks.first(None if self.error is None else str(self.error) or type(self.error).__name__)
        if self.error is not None:
            raise self.error
        if text is not None:
            raise TrainingError(text)


class KeepEvery(Callback):
    """Keeps a copy of the checkpoint of every `steps`-th step: ``kept/<step>.pt`` in the run's folder.

    ``labkit.load_model(folder, step=...)`` loads it. The sample grid of that step is among the others.
    """

    def __init__(self, steps: int):
        self.steps = plain("steps", steps, int)

    def saves(self, run: Run) -> bool:
        return run.folder is not None and run.done % self.steps == 0

    def on_start(self, run: Run) -> None:
        if run.folder is not None and run.done > 0:  # a kill may have come between a checkpoint and its copy
            self.on_save(run, run.folder / checkpoints.FILE)

    def on_save(self, run: Run, path: Path) -> None:
        if self.saves(run):
            with atomic_write(checkpoints.kept_file(path.parent, run.done)) as part:
                shutil.copyfile(path, part)


class LossesCsv(Callback):
    """Writes a row for each step: its number and the losses.

    At each report the rows since the last one are appended. A run that resumes writes the whole file again, from the
    losses in its checkpoint, so that no row is missing or repeated. A loss is empty in steps that did not have it.
    """

    def __init__(self, path: Path):
        self.path, self.rows = path, 0
        self.names: list[str] = []  # of the columns in the file; if they change, the file is written again

    def on_start(self, run: Run) -> None:
        if run.done:
            self.on_report(run)

    def on_report(self, run: Run) -> None:
        names = ["step", *run.losses]
        columns: list[Sequence] = [range(1, run.done + 1), *run.losses.values()]
        if names == self.names and self.path.exists():
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                _write(file, zip(*(values[self.rows :] for values in columns), strict=True))
        else:
            with atomic_write(self.path) as part, open(part, "w", newline="", encoding="utf-8") as file:
                _write(file, [names, *zip(*columns, strict=True)])
        self.names, self.rows = names, run.done


def _write(file: TextIO, rows: Iterable[Sequence]) -> None:
    lines = (["" if value != value else value for value in row] for row in rows)
    csv.writer(file, lineterminator="\n").writerows(lines)


class Progress(Callback):
    """Draws a bar, as `labkit.bars` does.

    Beside it are two sums, as in the public reference: the losses of the discriminators, and all the others.
    """

    def on_start(self, run: Run) -> None:
        self.bar = bar(initial=run.done, total=run.steps, unit="step")

    def on_step(self, run: Run) -> None:
        self.bar.update()

    def on_report(self, run: Run) -> None:
        sums = dict.fromkeys(("loss_G", "loss_D"), 0.0)  # more numbers would leave no room for the bar
        for name, values in run.losses.items():
            if not math.isnan(values[-1]):
                sums["loss_D" if name.startswith("D_") else "loss_G"] += values[-1]
        self.bar.set_postfix({name: f"{loss:.2f}" for name, loss in sums.items()}, refresh=False)

    def on_end(self, run: Run) -> None:
        self.bar.close()


class TensorBoard(Callback):
    """Writes the events that ``tensorboard --logdir FOLDER`` shows. It needs the package tensorboard.

    At each report: every loss, as its mean since the report before, and the learning rates. At each sample: its grid.
    A run that resumes continues in the same folder, and TensorBoard drops the points of steps that were lost.

    Args:
        folder: for the event files. It is made if it is missing.
    """

    def __init__(self, folder: Path | str):
        self.folder = folder

    def on_start(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second

        self.reported, self.writer = run.done, SummaryWriter(str(self.folder), purge_step=run.done + 1)

    def on_report(self, run: Run) -> None:
        for player, rate in run.step.lr_now.items():
            self.writer.add_scalar(f"learning rate/{player}", rate, run.done)
        for name, losses in run.losses.items():
            if recent := [loss for loss in losses[self.reported :] if loss == loss]:
                self.writer.add_scalar(f"losses/{name}", sum(recent) / len(recent), run.done)
        self.writer.flush()
        self.reported = run.done

    def on_sample(self, run: Run, grid: Tensor) -> None:
        self.writer.add_image("samples", grid, run.done)

    def on_end(self, run: Run) -> None:
        self.writer.close()


class CollapseWarning(UserWarning):
    """A generator gives almost the same picture for every input."""


class DiscriminatorWarning(UserWarning):
    """A discriminator tells nearly every translation from a real picture, soon after the beginning."""


def in_colours(pictures: Tensor) -> Tensor:
    """Pictures (N, C, H, W) as (N, 3, H, W): the first three channels, or the first one three times, as grey."""
    return pictures[:, :3] if pictures.shape[1] >= 3 else pictures[:, :1].expand(-1, 3, -1, -1)


def warn_of_discriminators(run: Run) -> None:
    """Warns if a discriminator has won: least squares and cross-entropy are near 0 then, and never below."""
    for name, losses in run.losses.items() if run.done <= EARLY else ():
        its, generator = losses[-JUDGED:], run.losses.get(f"G{name[1:]}", [])[-JUDGED:]
        if name[:2] == "D_" and len(generator) == JUDGED and SURE * sum(its) < sum(generator) and min(its) >= 0:
            warnings.warn(
                f"step {run.done}: for {JUDGED} steps {name} has told nearly all translations from real pictures, so "
                "the generator learns little from it. If samples do not get better, give discriminators a lower "
                "learning rate, or the losses that keep pictures as they are (cycle, identity, deviation) less weight.",
                DiscriminatorWarning,
                stacklevel=3,
            )


def sample(run: Run, data: UnpairedData, n: int = 4) -> Tensor | None:
    """Translates `n` test pictures of each domain and writes a grid of them. Warns if a training seems to fail.

    Returns:
        the grid, a ``uint8`` tensor of shape (3, H, W): pictures of A above their translations, then, if the model
        translates B as well, pictures of B above theirs. None if no test picture can be read any more.
    """
    from torchvision.utils import make_grid  # takes a second, and most processes never draw pictures

    if run.model.settings.get("judged") != "pictures":  # which an autoencoder blurs: there it wins in good runs, too
        warn_of_discriminators(run)
    rows, grid = [], None
    try:
        for direction in run.model.directions:
            pictures = data.test_a if direction == "AtoB" else data.test_b
            real = to_float(torch.stack([pictures[i] for i in range(min(n, len(pictures)))]))
            fake = run_network(run.translating.translator(direction), real)
            rows += [in_colours(real), in_colours(fake)]
            if len(real) > 1 and fake.std(0).mean() < COLLAPSED * real.std(0).mean():
                warnings.warn(
                    f"step {run.done}: {direction} gives nearly the same picture for different inputs. If that does "
                    "not pass, the generator has collapsed: is the cycle loss off, or the learning rate too high?",
                    CollapseWarning,
                    stacklevel=2,
                )
        grid = make_grid(to_uint8(torch.cat(rows)), nrow=len(rows[0]), pad_value=255)
        if run.folder is not None:
            write_picture(grid, run.folder / "samples" / f"{run.done:06d}.png")
    except DataError as error:  # no reason to lose the training so far
        warnings.warn(f"step {run.done}: {error}", stacklevel=2)
    return grid
