"""The loop round the step: batches, schedule, reports, sample pictures, checkpoints, exact resuming."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from labkit import ranks
from labkit.data.batches import UnpairedData, batches
from labkit.data.own import Loaded, Source, opened
from labkit.devices import LESS_MEMORY, OUT_OF_MEMORY
from labkit.errors import LabkitError, TrainingError
from labkit.pool import MixedPool
from labkit.step import Step
from labkit.training import losses_csv
from labkit.training.callbacks import Callback, OnReport, Watchers
from labkit.training.checkpoints import first_line
from labkit.training.history import Pending
from labkit.training.interrupts import Stopped, interrupts
from labkit.training.keeping import Keeper, kept
from labkit.training.losses_csv import LossesCsv
from labkit.training.progress import progress_bar
from labkit.training.run import Run
from labkit.training.samples import CollapseWarning as CollapseWarning
from labkit.training.samples import sample

FAILED = 255  # stands for an error where ranks agree to stop by the number of a signal


def fit(
    step: Step,
    data: UnpairedData | Dataset | DataLoader,
    steps: int,
    batch_size: int = 1,
    *,
    checkpoint: Path | str | None = None,
    seed: int = 0,
    workers: int = 0,
    schedule: Callable[[int], float] | None = None,
    report_every: int = 50,
    sample_every: int = 200,
    save_minutes: float = 5.0,
    keep_every: int | None = None,
    allow_new_data: bool = False,
    on_report: Callable[[Run], None] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Run:
    """Trains for `steps` steps, or resumes up to that number if `checkpoint` already holds a part of them.

    A resumed run ends with the same weights as an uninterrupted one, also after ``kill -9``: bit for bit on a CPU; on a
    GPU as far as its kernels give the same bits twice.
    Ctrl-C, SIGTERM and SIGHUP let the step under way finish, save, and raise a `KeyboardInterrupt` that says how to
    resume.

    Under torchrun every rank calls this inside `labkit.ranks.joined`, with a step of the speed-up "data_parallel". The
    ranks share each batch, so the pictures are the same whatever their number, which may change on resuming. Rank 0
    alone writes files, draws the progress bar, and calls `on_report` and the callbacks.

    Args:
        step: from `labkit.make_step`; its model decides device and float type.
        data: from `labkit.fruit`, `labkit.folders` or `labkit.unpaired`. Or a dataset (anything with a length and items
            by number) whose items are (a, b) or ``{"A": a, "B": b}``, one picture of each domain: floats in [-1, 1] of
            shape (3, H, W), all of one size, or ``uint8`` or PIL pictures. Or a `DataLoader` that yields such batches,
            (B, 3, H, W). A run with a DataLoader resumes with networks, optimisers and pools as they were, but the
            loader's order starts again, so it is not the run that it would have been unbroken.
        steps: the step to train up to.
        batch_size: pictures of each domain in a step, of all ranks together; a DataLoader has its own.
        checkpoint: a folder for checkpoint, sample pictures and ``losses.csv``, for one run at a time; None keeps none.
        seed: settles which batches are drawn.
        workers: processes that prepare batches; 0 prepares them between the steps.
        schedule: from the number of steps done to the factor on the learning rate; None leaves it constant.
        report_every: steps between two looks at the losses, each of which waits for the device once.
        sample_every: steps between two looks at translations: a `CollapseWarning` if they are all alike, and a
            grid, ``samples/<step>.png``: pictures of A above their translations, then, if the model translates those,
            pictures of B above theirs.
        save_minutes: minutes between two checkpoints; one is written at the end in any case.
        keep_every: steps between two checkpoints that are kept for good, each whole and with its sample grid, as
            ``kept/<step>.pt`` and ``.png``; None keeps the newest only. `labkit.load_model` takes the step.
        allow_new_data: whether a run goes on after pictures were added or taken away. The pictures of step k depend on
            the seed, on k and on the numbers of pictures alone. So the run goes on with the batches that a run with the
            new pictures has from this step on: the epoch under way may show some pictures twice and others not at all,
            and from the next one on each epoch shows all of them once.
        on_report: called with the `Run` after every look at the losses, for instance to draw them.
        callbacks: told of reports, samples, checkpoints and the end; an error in one, or in `on_report`, ends the run
            after it was saved.
        progress: whether to draw a progress bar, or to print a line every 30 seconds where there is no terminal.

    Raises:
        LabkitError: the arguments or the data do not fit, or another run trains into the folder.
        CheckpointError: the checkpoint is damaged, or of another model or other batches; or the last one cannot be
            written. If an earlier one cannot, on a full disk, a warning says so, and it is tried again within a minute.
        TrainingError: a loss is no longer finite, or memory ran out; the last good checkpoint is kept. Or a worker
            died; the run was saved.
    """
    numbers = {"steps": steps, "batch_size": batch_size, "report_every": report_every, "sample_every": sample_every}
    if keep_every is not None:
        numbers["keep_every"] = keep_every
    source = opened(data)
    _check(source, numbers, workers)
    if not save_minutes >= 0:
        raise LabkitError(f"save_minutes={save_minutes}: a number of minutes, 0 or more, is needed.")
    _check_ranks(step, batch_size)
    model = step.model
    if isinstance(source, UnpairedData):
        for height, width in sorted(source.sizes or {(source.size, source.size)}):
            model.check_size(height, width, where=f"data {source.name!r}")
    run = Run(step, steps, None if checkpoint is None else Path(checkpoint))
    if source.sizes and len(source.sizes) > 1:
        model.pools = {name: MixedPool.like(pool) for name, pool in model.pools.items()}
    settings = {**source.settings, "batch_size": batch_size, "seed": seed}
    keeper, pending = Keeper(run, settings, save_minutes, keep_every, allow_new_data), Pending(run)
    own = [LossesCsv(run.folder / losses_csv.FILE)] if run.folder else []
    watchers = Watchers(run, [*own, *([OnReport(on_report)] if on_report else []), *callbacks])
    rank = ranks.number()
    with ExitStack() as stack:
        keeper.resume(stack)
        ranks.all_equal("the run", {"done": run.done, "steps": steps, **settings, **model.settings})
        interrupted = stack.enter_context(interrupts())
        stack.enter_context(watchers)
        stream = stack.enter_context(closing(_stream(run, source, batch_size, seed, workers, watchers)))
        bar = stack.enter_context(progress_bar(run.done, steps, progress and rank == 0))
        agreement, stop = ranks.Agreement(), 0
        for real_a, real_b in stream:
            if schedule is not None:
                step.scale_lr(_factor(schedule, run.done))
            pending.add(_stepped(run, real_a, real_b))
            run.done += 1
            bar.update()
            stop, due = agreement.on(FAILED if watchers.error else sum(interrupted[:1]), keeper.late())
            last = stop > 0 or run.done == steps
            due = bool(due or last or keeper.keeps())
            if run.done % report_every == 0 or due:
                pending.look()
                bar.set_postfix({name: f"{values[-1]:.3f}" for name, values in run.losses.items()}, refresh=False)
                watchers.on_report(run)
            if rank == 0 and (run.done % sample_every == 0 or run.done == steps or keeper.keeps()):
                watchers.on_sample(run, sample(run, source))
            if watchers.error and ranks.count() == 1:  # several ranks stop together, after their next step
                stop = FAILED
                pending.look()
            if due or stop:
                path = keeper.save(last or stop > 0)
                if path is not None:
                    watchers.on_save(run, path)
            if stop:
                break
        agreement.settled()
        if run.done < steps and not stop:  # there are no more batches, for a reason that is an error, or came with one
            stop = interrupted[0] if interrupted else FAILED
            pending.look()
            keeper.save(last=True)
        if stop == FAILED:
            watchers.raise_error()
        if stop:
            interrupted.append(stop)  # another rank may have received it
            _stop(run, stop)
        step.settle()
        watchers.raise_error()
    return run


def _stream(
    run: Run, data: Source, batch_size: int, seed: int, workers: int, watchers: Watchers
) -> Generator[tuple[Tensor, Tensor]]:
    """The batches of the steps that are left. If an error ends them, the loop can save the run before it is raised."""
    try:
        yield from _batches(run, data, batch_size, seed, workers)
    except Exception as error:
        if _worker_died(error):
            where = f"The run is saved in {run.folder}: run" if run.folder else "Nothing was saved. Run"
            watchers.error = TrainingError(
                f"a process that prepares batches died ({first_line(error)}), perhaps since memory ran out. {where} "
                "the same again to go on, with fewer workers if this happens again."
            )
            watchers.error.__cause__ = error
        else:
            watchers.error = error
        if ranks.count() > 1:  # the other ranks still take the step under way, and a batch is the same without workers
            yield from _batches(run, data, batch_size, seed, workers=0)


def _worker_died(error: Exception) -> bool:
    """Whether PyTorch says that a worker is gone, or a batch could not be fetched from one."""
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    gone = isinstance(error, (ConnectionError, EOFError)) and "multiprocessing" in place
    return gone or "DataLoader worker (pid" in str(error)


def _batches(run: Run, data: Source, batch_size: int, seed: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    weight, step = next(run.model.parameters()), run.step
    if isinstance(data, Loaded):
        if run.done:
            warnings.warn(
                f"step {run.done}: the order of {data.name} starts again, so this run sees other pictures from here on "
                "than an unbroken one. For exact resuming give labkit.fit the dataset.",
                stacklevel=3,
            )
        return data.batches(run.steps - run.done, weight.device, weight.dtype)
    return batches(
        data,
        batch_size,
        run.done,
        run.steps,
        seed=seed,
        workers=workers,
        device=weight.device,
        dtype=weight.dtype,
        rank=ranks.number() % step.shares,
        ranks=step.shares,
    )


def _check(data: Source, numbers: dict[str, int], workers: int) -> None:
    """Raises `LabkitError` if arguments of `fit` cannot be used."""
    if isinstance(data, Loaded) and (numbers["batch_size"] > 1 or workers or ranks.count() > 1):
        raise LabkitError(
            f"{data.name} makes the batches: it decides their size and the number of workers, and feeds one process. "
            "Leave batch_size and workers out, or give labkit.fit the dataset."
        )
    for name, number, least in [*((name, number, 1) for name, number in numbers.items()), ("workers", workers, 0)]:
        if not isinstance(number, int) or number < least:
            raise LabkitError(f"{name}={number}: a whole number, at least {least}, is needed.")
    if numbers["batch_size"] > 1 and data.sizes and len(data.sizes) > 1:
        raise LabkitError(
            f"batch_size={numbers['batch_size']}: the pictures of {data.name!r} have {len(data.sizes)} sizes, and do "
            "not fit into one batch. Give batch_size=1, or a preprocess that crops."
        )


def _check_ranks(step: Step, batch_size: int) -> None:
    """Raises `LabkitError` if there are several ranks, and step or batch are not for them."""
    n = ranks.count()
    if step.ranks != n:
        raise LabkitError(
            f"{n} ranks, but each would train a model of its own: make the step with the speed-up 'data_parallel'."
        )
    if step.shares > 1:
        ranks.part(batch_size)  # raises an error if they cannot share it evenly


def _factor(schedule: Callable[[int], float], done: int) -> float:
    factor = schedule(done)
    if not 0 <= factor < float("inf"):
        raise LabkitError(f"schedule({done}) is {factor}: a factor on the learning rate is 0 or a positive number.")
    return factor


def _stepped(run: Run, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
    """The next step's losses. Raises `TrainingError` if it does not fit into memory."""
    try:
        return run.step(real_a, real_b)
    except OUT_OF_MEMORY as error:
        raise TrainingError(
            f"step {run.done + 1}: out of memory with batches of {len(real_a)} ({str(error).partition('. ')[0]})."
            f"{kept(run)} {LESS_MEMORY}"
        ) from error


def _stop(run: Run, number: int) -> None:
    where = "nothing was saved, since no checkpoint folder was given"
    if run.folder is not None:
        where = f"saved in {run.folder}: run the same again to go on from there"
    raise Stopped(f"stopped after step {run.done} of {run.steps}; {where}.", number)
