"""The loop round the step: batches, schedule, reports, sample pictures, checkpoints, exact resuming."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torchvision.utils import make_grid
from tqdm.auto import tqdm

from labkit import ranks
from labkit.data.batches import UnpairedData, batches, to_float, to_uint8
from labkit.data.images import write_picture
from labkit.devices import LESS_MEMORY, OUT_OF_MEMORY
from labkit.errors import DataError, LabkitError, TrainingError
from labkit.files import locked
from labkit.model import Model, run_network
from labkit.pool import MixedPool
from labkit.step import Step
from labkit.training import checkpoints
from labkit.training.interrupts import interrupts

COLLAPSED = 0.1  # outputs count as all alike if they differ by less than this share of their inputs' differences


class CollapseWarning(UserWarning):
    """A generator gives almost the same picture for every input."""


@dataclass
class Run:
    """A training run: where it stands, and every loss of every step so far."""

    step: Step
    steps: int
    folder: Path | None = None
    done: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.step.model


def fit(
    step: Step,
    data: UnpairedData,
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
    on_report: Callable[[Run], None] | None = None,
    progress: bool = True,
) -> Run:
    """Trains for `steps` steps, or resumes up to that number if `checkpoint` already holds a part of them.

    A resumed run ends with the same weights as an uninterrupted one, also after ``kill -9``: bit for bit on a CPU; on a
    GPU as far as its kernels give the same bits twice.
    Ctrl-C and SIGTERM let the step under way finish, save, and say how to resume.

    Under torchrun every rank calls this inside `labkit.ranks.joined`, with a step of the speed-up "data_parallel". The
    ranks share each batch, so the pictures are the same whatever their number, which may change on resuming. Rank 0
    alone writes files, draws the progress bar, and calls `on_report`.

    Args:
        step: from `labkit.make_step`; its model decides device and float type.
        data: from `labkit.fruit` or `labkit.folders`.
        steps: the step to train up to.
        batch_size: pictures of each domain in a step, of all ranks together.
        checkpoint: a folder for checkpoint and sample pictures, for one run at a time; None keeps neither.
        seed: settles which batches are drawn.
        workers: processes that prepare batches; 0 prepares them between the steps.
        schedule: from the number of steps done to the factor on the learning rate; None leaves it constant.
        report_every: steps between two looks at the losses, each of which waits for the device once.
        sample_every: steps between two looks at translations: a `CollapseWarning` if they are all alike, and a
            grid, ``samples/<step>.png``: pictures of A above their translations, then, if the model translates those,
            pictures of B above theirs.
        save_minutes: minutes between two checkpoints; one is written at the end in any case.
        on_report: called with the `Run` after every look at the losses, for instance to draw them.
        progress: whether to draw a progress bar.

    Raises:
        LabkitError: the arguments or the data do not fit, or another run trains into the folder.
        CheckpointError: the checkpoint is damaged, or of another model or other batches.
        TrainingError: a loss is no longer finite, or memory ran out; the last good checkpoint is kept.
    """
    numbers = {"steps": steps, "batch_size": batch_size, "report_every": report_every, "sample_every": sample_every}
    _check(data, numbers, workers)
    _check_ranks(step, batch_size)
    model = step.model
    for height, width in sorted(data.sizes or {(data.size, data.size)}):
        model.check_size(height, width, where=f"data {data.name!r}")
    run = Run(step, steps, None if checkpoint is None else Path(checkpoint))
    if data.sizes and len(data.sizes) > 1:
        model.pools = {name: MixedPool.like(pool) for name, pool in model.pools.items()}
    settings = {**data.settings, "batch_size": batch_size, "seed": seed}
    rank = ranks.number()
    pending: list[dict[str, Tensor]] = []  # losses of steps nobody has looked at yet
    with ExitStack() as stack:
        _resume(run, settings, stack)
        ranks.all_equal("the run", {"done": run.done, "steps": steps, **settings, **model.settings})
        weight = next(model.parameters())
        stream = batches(
            data,
            batch_size,
            run.done,
            steps,
            seed=seed,
            workers=workers,
            device=weight.device,
            dtype=weight.dtype,
            rank=rank % step.shares,
            ranks=step.shares,
        )
        interrupted = stack.enter_context(interrupts())
        bar = stack.enter_context(tqdm(initial=run.done, total=steps, unit="step", disable=rank > 0 or not progress))
        agreement, saved_at, stop = ranks.Agreement(), time.monotonic(), False
        for real_a, real_b in stream:
            if schedule is not None:
                step.scale_lr(_factor(schedule, run.done))
            pending.append(_stepped(run, real_a, real_b))
            run.done += 1
            bar.update()
            late = run.folder is not None and time.monotonic() - saved_at >= 60 * save_minutes
            stop, due = agreement.on(bool(interrupted), late)
            save_due = due or stop or run.done == steps
            if run.done % report_every == 0 or save_due:
                _look_at_losses(run, pending)
                bar.set_postfix({name: f"{values[-1]:.3f}" for name, values in run.losses.items()}, refresh=False)
                if on_report is not None and rank == 0:
                    on_report(run)
            if rank == 0 and (run.done % sample_every == 0 or run.done == steps):
                _sample(run, data)
            if save_due:
                saved_at = time.monotonic()
                if run.folder is not None:
                    _save(run, run.folder, settings)
            if stop:
                break
        agreement.settled()
        if stop:
            _stop(run)
        step.settle()
    return run


def _check(data: UnpairedData, numbers: dict[str, int], workers: int) -> None:
    """Raises `LabkitError` if arguments of `fit` cannot be used."""
    if not isinstance(data, UnpairedData):
        raise LabkitError(f"data={data!r}: give pictures, from labkit.folders(...) or labkit.fruit().")
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
            f"{_kept(run)} {LESS_MEMORY}"
        ) from error


def _kept(run: Run) -> str:
    if run.folder is None or not (run.folder / checkpoints.FILE).exists():
        return " Nothing was saved before it."
    return f" The last good checkpoint is kept in {run.folder}."


def _look_at_losses(run: Run, pending: list[dict[str, Tensor]]) -> None:
    """Moves the pending losses into the run's history: the loop's only wait for the device."""
    names = list(pending[0])
    rows = torch.stack([torch.stack([losses[name] for name in names]) for losses in pending]).tolist()
    first = run.done - len(pending) + 1
    pending.clear()
    for number, row in enumerate(rows, start=first):
        bad = [name for name, loss in zip(names, row, strict=True) if not abs(loss) < float("inf")]
        if bad:
            kept = _kept(run)
            raise TrainingError(
                f"step {number}: {', '.join(bad)} is no longer a finite number, so training stopped.{kept} "
                "Usual causes: a learning rate that is too high, or 16-bit arithmetic without loss scaling. Fix the "
                "cause and rerun the same command: training resumes from the last checkpoint, or restarts if there is "
                "none."
            )
        for name, loss in zip(names, row, strict=True):
            run.losses.setdefault(name, []).append(loss)


def _sample(run: Run, data: UnpairedData, n: int = 4) -> None:
    """Translates some test pictures: warns if the results are all alike, and writes a grid of them."""
    rows = []
    for direction in run.model.directions:
        pictures = data.test_a if direction == "AtoB" else data.test_b
        real = to_float(torch.stack([pictures[i] for i in range(min(n, len(pictures)))]))
        fake = run_network(run.model.translator(direction), real)
        rows += [real, fake]
        if len(real) > 1 and fake.std(0).mean() < COLLAPSED * real.std(0).mean():
            warnings.warn(
                f"step {run.done}: {direction} gives nearly the same picture for different inputs. If that does not "
                "pass, the generator has collapsed: is the cycle loss switched off, or the learning rate too high?",
                CollapseWarning,
                stacklevel=2,
            )
    if run.folder is None:
        return
    grid = make_grid(to_uint8(torch.cat(rows)), nrow=len(rows[0]), pad_value=255)
    try:
        write_picture(grid, run.folder / "samples" / f"{run.done:06d}.png")
    except DataError as error:  # no reason to lose the training so far
        warnings.warn(f"step {run.done}: {error}", stacklevel=2)


def _save(run: Run, folder: Path, settings: dict) -> None:
    on_gpu = next(run.model.parameters()).is_cuda
    state = {
        "kind": run.model.kind,
        "settings": run.model.settings,
        "batches": settings,
        "step": run.step.state_dict(),  # every rank has to ask for it, although one writes it
        "done": run.done,
        "losses": {name: torch.tensor(values, dtype=torch.float64) for name, values in run.losses.items()},
        "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if on_gpu else None},
    }
    if ranks.number() == 0:
        checkpoints.save(state, folder)


def _resume(run: Run, settings: dict, stack: ExitStack) -> None:
    """Continues the run from the checkpoint in its folder, if there is one; makes the folder if not.

    While the contexts of `stack` last, no other run may use the folder.
    """
    if run.folder is None:
        return
    try:
        (run.folder / "samples").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabkitError(f"{run.folder}: this folder cannot be made ({error.strerror}). Name another one.") from error
    if ranks.number() == 0:
        stack.enter_context(locked(run.folder))
    if not (run.folder / checkpoints.FILE).exists():
        return
    device = next(run.model.parameters()).device
    state = checkpoints.load(run.folder, device)
    checkpoints.check_settings(run.folder, "model", {"kind": state["kind"]}, {"kind": run.model.kind})
    checkpoints.check_settings(run.folder, "model", state["settings"], run.model.settings)
    checkpoints.check_settings(run.folder, "run", state["batches"], settings)
    run.step.load_state_dict(state["step"])
    run.done = state["done"]
    run.losses = {name: values.tolist() for name, values in state["losses"].items()}
    torch.set_rng_state(state["random"]["cpu"].cpu())
    if device.type == "cuda" and state["random"]["cuda"] is not None:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu())


def _stop(run: Run) -> None:
    where = "nothing was saved, since no checkpoint folder was given"
    if run.folder is not None:
        where = f"saved in {run.folder}: run the same again to go on from there"
    raise KeyboardInterrupt(f"stopped after step {run.done} of {run.steps}; {where}.")
