"""The loop around the step: batches, schedule, reports, sample pictures, checkpoints, exact resuming."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from labkit import ranks
from labkit.data.batches import UnpairedData, batches
from labkit.data.custom_data import open_data
from labkit.devices import cudnn_benchmark
from labkit.errors import CheckpointError, LabkitError, TrainingError, explained
from labkit.models.step import Step
from labkit.settings import plain
from labkit.training import checkpoints
from labkit.training.callbacks import LOSSES, Callback, Callbacks, LossesCsv, Progress, sample
from labkit.training.interrupts import Stopped, interrupts
from labkit.training.run import Run, resumed, save_run, state_of
from labtrace.errors import check_at_least


@cudnn_benchmark()
def fit(
    step: Step,
    data: UnpairedData | Dataset,
    steps: int,
    batch_size: int = 1,
    *,
    checkpoint: Path | str | None = None,
    seed: int = 0,
    workers: int = 0,
    schedule: Callable[[int], float] | None = None,
    ema: float = 0.0,
    report_every: int = 50,
    sample_every: int = 200,
    save_minutes: float = 5.0,
    callbacks: Callback | Callable[[Run], None] | Sequence[Callback | Callable[[Run], None]] = (),
) -> Run:
    """Trains for `steps` steps, or resumes up to that number if `checkpoint` already holds a part of them.

    A resumed run ends with the same weights as an uninterrupted one, also after ``kill -9``: bit for bit on a CPU, and
    on a GPU as far as its kernels give the same bits twice. Ctrl-C, SIGTERM and SIGHUP let the step under way finish,
    save, and raise a `KeyboardInterrupt` that says how to resume. A bar shows the progress, or a line every 30 seconds
    where there is no terminal. The environment variable ``TQDM_DISABLE=1``, set before torch is imported, hides both.

    Under torchrun every rank calls this inside `labkit.ranks.process_group`, with a step of the speed-up
    "data_parallel". The ranks share each batch, so the pictures are the same whatever their number, which may change on
    resuming. Rank 0 alone writes files, draws the progress bar, and calls the callbacks.

    Args:
        step: from `labkit.make_step`. Its model decides device and float type.
        data: from `labkit.fruit` or `labkit.folders`. Or a dataset (anything with a length and items by number) whose
            items are (a, b) or ``{"A": a, "B": b}``, one picture of each domain, all of one size: files, PIL pictures,
            arrays (H, W, C), or tensors (C, H, W), with numbers as `labkit.data.read_picture` takes them. Its items may
            draw from the random numbers of torch, Python and NumPy: these are seeded for each item, so that a run
            resumes exactly.
        steps: the step to train up to.
        batch_size: pictures of each domain in a step, of all ranks together.
        checkpoint: a folder for checkpoint, sample pictures and ``losses.csv``, for one run at a time. None keeps none.
        seed: decides which pictures are in each batch.
        workers: processes that prepare batches. 0 prepares them between the steps.
        schedule: from the number of steps done to the factor on the learning rate. None leaves it
            constant, in a resumed run as the checkpoint has it.
        ema: how much each step keeps of an exponential moving average of the weights, for example 0.999. Samples,
            scores, and all that loads the run to translate or export use the average. 0 keeps none.
        report_every: steps between two reports of the losses, each of which waits for the device once.
        sample_every: steps between two samples of translations: a `CollapseWarning` if they are all alike, a
            `DiscriminatorWarning` if early in the run a discriminator has won, and a grid, ``samples/<step>.png``:
            pictures of A above their translations, then, if the model translates B as well, pictures of B above theirs.
        save_minutes: minutes between two checkpoints. One is written at the end in any case. `labkit.KeepEvery` is a
            callback that keeps some of them.
        callbacks: one or more, told of reports, samples, checkpoints and the end. A function is called with the `Run`
            after each report, for example to draw its losses. An error in a callback ends the run after it was saved.

    Raises:
        LabkitError: the arguments or the data do not fit, another run trains into the folder, or a checkpoint could not
            give back what the run or a part of your own keeps. The message has the place and the type.
        CheckpointError: the checkpoint is damaged, or of another model or other batches, or one cannot be written, for
            instance on a full disk. The last good one stays.
        TrainingError: a loss is no longer finite, and the last good checkpoint is kept. Or a worker died, and the run
            was saved.

    Example:
        >>> step = labkit.make_step(labkit.CycleGAN("resnet_3blocks", ngf=4, ndf=4))
        >>> run = labkit.fit(step, labkit.fruit(n=4, size=32), steps=2, workers=0, checkpoint="out/run")
        >>> run.done, len(run.losses["G_A"])
        (2, 2)
    """
    if schedule is not None:
        with explained(f"schedule={schedule!r:.60}", "Give a function of steps done, as labkit.linear_schedule(9, 9)."):
            float(schedule(0))
    seed, batch_size, ema = plain("seed", seed, int), plain("batch_size", batch_size, int), plain("ema", ema, float)
    steps = plain("steps", steps, int)
    pictures = open_data(data, step.model.channels)
    _check(pictures, step, batch_size, ema, steps=steps, report_every=report_every, sample_every=sample_every)
    settings = {**pictures.settings, "batch_size": batch_size, "seed": seed, **({"ema": ema} if ema else {})}
    run = Run(step, steps, pictures, None if checkpoint is None else Path(checkpoint), settings, ema=ema)
    log = [LossesCsv(run.folder / LOSSES)] if run.folder else []
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    watchers = Callbacks(run, [*log, Progress(), *given])
    with (
        resumed(run),
        interrupts() as signals,
        watchers,
        closing(_stream(run, pictures, workers, watchers, signals)) as stream,
    ):
        watchers.raise_error()
        stops = Stops(run, watchers, signals, save_minutes)
        for batch in stream:
            if run.folder and run.done <= run.saved + 1:  # again when the first step has made the optimisers' states
                checkpoints.check(state_of(run))
            # ----------------------------------------------------------------------------------------------------------
            # The training step: one update of each player. Nothing here waits for the device.
            if schedule is not None:
                step.scale_lr(schedule(run.done))
            step.steps_done = run.done
            losses = step(*batch)
            run.add(losses)
            # ----------------------------------------------------------------------------------------------------------
            watchers.tell("on_step")
            stops.agree()
            milestone = run.done == steps or watchers.saves()
            if milestone or stops.late or stops.stop or run.done % report_every == 0:
                run.collect_losses()  # sync point: waits for the device
                watchers.tell("on_report")
            if ranks.number() == 0 and (milestone or run.done % sample_every == 0):
                if (grid := sample(run, pictures)) is not None:
                    watchers.tell("on_sample", grid)
            stops.agree_alone()
            if milestone or stops.late or stops.stop:
                stops.save_run()
            if stops.stop:
                break
        stops.after_the_last()
        if not stops.failed:
            step.finish()
    watchers.raise_error()
    return run


class Stops:
    """Saves the run, and stops it before its last step: for an error, a signal or a callback, on all ranks together.

    After a step every rank has four wishes, and acts on the largest of each among the ranks. The attributes are these.

    Attributes:
        failed: 1 if there was an error, which is raised after the run was saved.
        signal: the number of the signal that stops the run, or 0.
        late: 1 if a checkpoint is due.
        end: 1 if a callback stops the run.
    """

    def __init__(self, run: Run, watchers: Callbacks, signals: list[int], save_minutes: float):
        self.run, self.watchers, self.signals, self.minutes = run, watchers, signals, save_minutes
        self.failed = self.signal = self.late = self.end = 0
        self.save_at = time.monotonic() + 60 * save_minutes

    def agree(self) -> None:
        """Tells the other ranks what this one wishes, and takes what all have agreed on.

        Raises:
            CheckpointError: the run's folder is gone.
        """
        if ranks.number() == 0 and self.run.folder is not None and not self.run.folder.is_dir():
            raise CheckpointError(f"{self.run.folder} was renamed or removed: undo that.{self.run.resume_hint()}")
        late = self.run.folder is not None and time.monotonic() >= self.save_at
        wishes = self.watchers.error is not None, self.signals[0] if self.signals else 0, late, self.run.stopping
        self.failed, self.signal, self.late, self.end = ranks.agreed(*wishes)

    def agree_alone(self) -> None:
        """Takes what callbacks wished meanwhile. Several ranks stop together, after their next step."""
        if ranks.count() == 1:
            self.failed, self.end = self.watchers.error is not None, self.run.stopping

    @property
    def stop(self) -> bool:
        """True if the run ends after this step."""
        return max(self.failed, self.signal, self.end) > 0

    def save_run(self) -> None:
        """Saves the run, with the callbacks' states."""
        self.watchers.keep_states()
        save_run(self.run)
        if self.run.folder is not None:
            self.watchers.tell("on_save", self.run.folder / checkpoints.FILE)
        self.save_at = time.monotonic() + 60 * self.minutes

    def after_the_last(self) -> None:
        """Saves the run if an error ended its batches, and raises `Stopped` if a signal stopped it."""
        if self.run.done < self.run.steps and not self.stop:
            self.signal = self.signals[0] if self.signals else 0  # which may have caused the error
            self.failed = not self.signal
            self.save_run()
        if self.signal and not self.failed:
            self.signals.append(self.signal)  # another rank may have received it
            text = f"stopped after step {self.run.done} of {self.run.steps}; {_where_saved(self.run)}."
            raise Stopped(text, self.signal)


def _stream(
    run: Run, data: UnpairedData, workers: int, watchers: Callbacks, signals: Sequence[int]
) -> Generator[tuple[Tensor, Tensor]]:
    """The batches of the steps that are left. If an error ends them, the loop can save the run before it is raised."""
    weight, shares = next(run.model.parameters()), run.step.shares
    place: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
    place |= {"seed": run.batches["seed"], "rank": ranks.number() % shares, "ranks": shares}
    size = run.batches["batch_size"]
    try:
        yield from batches(data, size, run.done, run.steps, workers=workers, signals=signals, **place)
    except Exception as error:
        watchers.error = _cause(error, run)
    if ranks.count() > 1:  # the other ranks still take the step under way, and a batch is the same without workers
        yield from batches(data, size, run.done, run.steps, **place)


def _cause(error: Exception, run: Run) -> Exception:
    """The error to raise for one that ended the batches: one of a worker says what to do, those of pictures stay."""
    if re.search("(allocate|out of) shared memory", str(error)):
        return TrainingError(
            "/dev/shm is full: batches are handed over there. Give it more room (in Docker with --shm-size), or take "
            f"fewer workers (0 need none) or, in a new folder, smaller batches; {_where_saved(run)}."
        )
    lost = isinstance(error, (ConnectionError, EOFError)) and not str(error).startswith("Caught")
    if lost or "DataLoader worker (pid" in str(error):
        reason = checkpoints.in_one_line(error)
        return TrainingError(
            f"a process that prepares batches died ({reason}), perhaps since memory ran out; {_where_saved(run)}, "
            "with fewer workers if this happens again."
        )
    if isinstance(error, LabkitError) and str(error).startswith("Caught"):  # what a worker said, below its traceback
        return type(error)(re.split(rf"^\S*{type(error).__name__}: ", str(error).rstrip(), flags=re.MULTILINE)[-1])
    return error  # of the pictures, here or in a worker


def _check(data: UnpairedData, step: Step, batch_size: int, ema: float, **numbers: int) -> None:
    """Raises `LabkitError` for arguments that would fail late or without a message."""
    check_at_least(1, batch_size=batch_size, **numbers)
    if not 0 <= ema < 1:
        raise LabkitError(f"ema={ema}: at least 0 and below 1 is needed, such as 0.999.")
    height, width = data.whole or (data.size, data.size)
    step.model.check_size(height, width, where=f"data {data.name!r}")
    if step.ranks != ranks.count():
        raise LabkitError(f"{ranks.count()} ranks, but each would train a model of its own: use 'data_parallel'.")
    if step.shares > 1:
        ranks.local_batch_size(batch_size)  # raises an error if they cannot share it evenly


def _where_saved(run: Run) -> str:
    if run.folder is None:
        return "nothing was saved, since no checkpoint folder was given: run the same again"
    return f"saved in {run.folder}: run the same again to continue from there"
