"""The loop round the step: batches, schedule, reports, sample pictures, checkpoints, exact resuming."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from labkit import ranks
from labkit.data.batches import UnpairedData, batches
from labkit.data.custom_data import open_data
from labkit.devices import LESS_MEMORY, cudnn_benchmark, out_of_memory
from labkit.errors import LabkitError, TrainingError
from labkit.models.pool import MixedPool
from labkit.models.step import Step
from labkit.training import losses_csv
from labkit.training.callbacks import Callback, Watchers
from labkit.training.checkpoints import first_line
from labkit.training.interrupts import Stopped, interrupts
from labkit.training.keeping import Keeper
from labkit.training.losses_csv import LossesCsv
from labkit.training.progress import Progress
from labkit.training.run import Run
from labkit.training.samples import CollapseWarning as CollapseWarning
from labkit.training.samples import sample

FAILED = 255  # stands for an error where ranks agree to stop by the number of a signal


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
    report_every: int = 50,
    sample_every: int = 200,
    save_minutes: float = 5.0,
    callbacks: Sequence[Callback | Callable[[Run], None]] = (),
) -> Run:
    """Trains for `steps` steps, or resumes up to that number if `checkpoint` already holds a part of them.

    A resumed run ends with the same weights as an uninterrupted one, also after ``kill -9``: bit for bit on a CPU; on a
    GPU as far as its kernels give the same bits twice.
    Ctrl-C, SIGTERM and SIGHUP let the step under way finish, save, and raise a `KeyboardInterrupt` that says how to
    resume. A bar shows the progress, or a line every 30 seconds where there is no terminal; the environment variable
    ``TQDM_DISABLE=1`` hides both.

    Under torchrun every rank calls this inside `labkit.ranks.process_group`, with a step of the speed-up
    "data_parallel". The ranks share each batch, so the pictures are the same whatever their number, which may change on
    resuming. Rank 0 alone writes files, draws the progress bar, and calls the callbacks.

    Args:
        step: from `labkit.make_step`; its model decides device and float type.
        data: from `labkit.fruit` or `labkit.folders`. Or a dataset (anything with a length and items by number) whose
            items are (a, b) or ``{"A": a, "B": b}``, one picture of each domain: floats in [-1, 1] of shape (3, H, W),
            all of one size, or ``uint8`` or PIL pictures. Its items may draw from the random numbers of torch, Python
            and NumPy: these are seeded for each item, so that a run resumes exactly.
        steps: the step to train up to.
        batch_size: pictures of each domain in a step, of all ranks together.
        checkpoint: a folder for checkpoint, sample pictures and ``losses.csv``, for one run at a time; None keeps none.
            A run whose pictures are no longer as many as they were goes on after `labkit.accept_new_data`.
        seed: settles which batches are drawn.
        workers: processes that prepare batches; 0 prepares them between the steps.
        schedule: from the number of steps done to the factor on the learning rate; None leaves it constant.
        report_every: steps between two looks at the losses, each of which waits for the device once.
        sample_every: steps between two looks at translations: a `CollapseWarning` if they are all alike, and a
            grid, ``samples/<step>.png``: pictures of A above their translations, then, if the model translates those,
            pictures of B above theirs.
        save_minutes: minutes between two checkpoints; one is written at the end in any case. `labkit.KeepEvery` is a
            callback that keeps some of them.
        callbacks: told of reports, samples, checkpoints and the end; a function is called with the `Run` after every
            look at the losses, for instance to draw them. An error in one ends the run after it was saved.

    Raises:
        LabkitError: the arguments or the data do not fit, or another run trains into the folder.
        CheckpointError: the checkpoint is damaged, or of another model or other batches; or one cannot be written, for
            instance on a full disk. The last good one stays.
        TrainingError: a loss is no longer finite, or memory ran out; the last good checkpoint is kept. Or a worker
            died; the run was saved.
    """
    source = open_data(data)
    _check(source, step, steps, batch_size, workers, report_every, sample_every, save_minutes)
    run = Run(step, steps, None if checkpoint is None else Path(checkpoint))
    if source.sizes and len(source.sizes) > 1:
        run.model.pools = {name: MixedPool.like(pool) for name, pool in run.model.pools.items()}
    settings = {**source.settings, "batch_size": batch_size, "seed": seed}
    keeper, agreement, stop = Keeper(run, settings, save_minutes), ranks.Agreement(), 0
    csv = [LossesCsv(run.folder / losses_csv.FILE)] if run.folder else []
    watchers = Watchers(run, [*csv, Progress(), *callbacks])
    with ExitStack() as stack:
        keeper.resume(stack)
        ranks.all_equal({"done": run.done, "steps": steps, **settings, **run.model.settings})
        signals = stack.enter_context(interrupts())
        stack.enter_context(watchers)
        for batch in stack.enter_context(closing(_stream(run, source, batch_size, seed, workers, watchers))):
            if schedule is not None:
                step.scale_lr(_factor(schedule, run.done))
            run.add(_losses(run, *batch))
            watchers.tell("on_step")
            stop, late = agreement.on(FAILED if watchers.error else sum(signals[:1]), keeper.late())
            wanted, last = watchers.saves(), stop > 0 or run.done == steps
            if run.done % report_every == 0 or late or wanted or last:
                run.look()
                watchers.tell("on_report")
            if ranks.number() == 0 and (run.done % sample_every == 0 or wanted or run.done == steps):
                watchers.tell("on_sample", sample(run, source))
            if watchers.error and ranks.count() == 1:  # several ranks stop together, after their next step
                stop = FAILED
            if late or wanted or last or stop:
                _save(run, keeper, watchers)
            if stop:
                break
        agreement.settled()
        if run.done < steps and not stop:  # there are no more batches, for a reason that is an error, or came with one
            stop = signals[0] if signals else FAILED
            _save(run, keeper, watchers)
        if 0 < stop < FAILED:
            signals.append(stop)  # another rank may have received it
            raise Stopped(_stopped(run), stop)
        if not stop:
            step.finish()
        watchers.raise_error()
    return run


def _save(run: Run, keeper: Keeper, watchers: Watchers) -> None:
    run.look()  # a loss that is not finite is not saved
    path = keeper.save()
    if path is not None:
        watchers.tell("on_save", path)


def _stream(
    run: Run, data: UnpairedData, batch_size: int, seed: int, workers: int, watchers: Watchers
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


def _batches(run: Run, data: UnpairedData, batch_size: int, seed: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    weight, step = next(run.model.parameters()), run.step
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


def _check(
    data: UnpairedData,
    step: Step,
    steps: int,
    batch_size: int,
    workers: int,
    report_every: int,
    sample_every: int,
    save_minutes: float,
) -> None:
    """Raises `LabkitError` if arguments of `fit` cannot be used."""
    numbers = {"steps": steps, "batch_size": batch_size, "report_every": report_every, "sample_every": sample_every}
    for name, number, least in [*((name, number, 1) for name, number in numbers.items()), ("workers", workers, 0)]:
        if not isinstance(number, int) or number < least:
            raise LabkitError(f"{name}={number}: a whole number, at least {least}, is needed.")
    if not save_minutes >= 0:
        raise LabkitError(f"save_minutes={save_minutes}: a number of minutes, 0 or more, is needed.")
    if batch_size > 1 and data.sizes and len(data.sizes) > 1:
        raise LabkitError(
            f"batch_size={batch_size}: the pictures of {data.name!r} have {len(data.sizes)} sizes, and do not fit into "
            "one batch. Give batch_size=1, or a preprocess that crops."
        )
    for height, width in sorted(data.sizes or {(data.size, data.size)}):
        step.model.check_size(height, width, where=f"data {data.name!r}")
    if step.ranks != ranks.count():
        raise LabkitError(
            f"{ranks.count()} ranks, but each would train a model of its own: make the step with the speed-up "
            "'data_parallel'."
        )
    if step.shares > 1:
        ranks.local_batch_size(batch_size)  # raises an error if they cannot share it evenly


def _factor(schedule: Callable[[int], float], done: int) -> float:
    factor = schedule(done)
    if not 0 <= factor < float("inf"):
        raise LabkitError(f"schedule({done}) is {factor}: a factor on the learning rate is 0 or a positive number.")
    return factor


def _losses(run: Run, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
    """The next step's losses. Raises `TrainingError` if it does not fit into memory."""
    try:
        return run.step(real_a, real_b)
    except (RuntimeError, MemoryError) as error:
        if (reason := out_of_memory(error)) is None:
            raise
        raise TrainingError(
            f"step {run.done + 1}: out of memory with batches of {len(real_a)} ({reason}).{run.kept()} {LESS_MEMORY}"
        ) from error


def _stopped(run: Run) -> str:
    where = "nothing was saved, since no checkpoint folder was given"
    if run.folder is not None:
        where = f"saved in {run.folder}: run the same again to go on from there"
    return f"stopped after step {run.done} of {run.steps}; {where}."
