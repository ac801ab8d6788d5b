"""Sweeps: several workers, on as many machines as there are, share the trials of one journal.

The engine is Optuna: its journal keeps the trials, its sampler (TPE) suggests settings, its pruner stops hopeless
trials. labkit adds what Optuna lacks for a journal: the trial of a worker that died goes on from its checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import ranks, recipes
from labkit.data.batches import UnpairedData
from labkit.data.fruit import FruitData
from labkit.devices import pick_device
from labkit.errors import LabkitError, check_known
from labkit.measure.quality import GOAL
from labkit.sweeps import journal
from labkit.sweeps.space import parse
from labkit.sweeps.worker import Worker

if TYPE_CHECKING:
    import pandas

PRUNERS = ("none", "median")


def sweep(
    data: UnpairedData,
    space: Mapping[str, str],
    trials: int,
    storage: Path | str,
    *,
    model: str = "CycleGAN",
    steps: int | None = None,
    seed: int = 0,
    pruner: str = "median",
    workers: int = 0,
    device: str = "auto",
    save_minutes: float = 1.0,
    stale_seconds: float = 60.0,
    say: Callable[[str], None] = print,
) -> pandas.DataFrame:
    """Works on a sweep until all its trials are finished; started several times, all workers share the trials.

    A trial is a run of `labkit.fit` with the recipe's settings, except for those that are searched. Its value is the
    shortfall of its quality at the end: fg and bg as shares of their goals, of which the larger counts; 1 or less has
    reached the goal. Optuna's TPE sampler suggests settings; its seed is `seed` plus the trial's number, so that the
    first ten trials are the same in every sweep.

    A worker that is killed leaves its trial behind. Another one, or the same started again, takes it up from its
    checkpoint once it has seen no sign of life for `stale_seconds`. At the end a worker waits for the trials of the
    others for as long as they live, and takes over those of the dead. Ctrl-C gives a trial back at once.

    Args:
        data: from `labkit.fruit`, the only data with a truth to compare with.
        space: "LOW:HIGH", "LOW:HIGH:log" or "A,B,C" by setting: an argument of the model, "lr" or "batch_size".
        trials: how many there are, of all workers together. A later start may ask for more.
        storage: the file that all workers share, for example "out/sweep.journal". The runs go into the folder
            "out/sweep", one folder each.
        model: "CycleGAN" or "DeviationGAN".
        steps: of each trial; None takes the recipe's.
        seed: determines the first weights and the batches of each trial, as for `labkit train`.
        pruner: "median" stops a trial whose best value so far is worse than the median of the others at that step. It
            needs five finished trials, and leaves the first quarter of each trial alone. "none" stops none.
        workers: processes that prepare batches; 0 paints the pictures once for all trials.
        device: "auto", "cpu", "cuda", ...
        save_minutes: minutes between two checkpoints of a trial.
        stale_seconds: without a sign of life after which a worker counts as dead.
        say: called with each line of progress.

    Returns:
        the table of all trials, as from `table`.

    Raises:
        LabkitError: an argument cannot be used; the journal is damaged, cannot be written, or is of another sweep.
        CheckpointError: a checkpoint cannot be read or written, for example on a full disk. The trial can go on later.
    """
    journal.check_optuna()
    if not isinstance(data, FruitData):
        raise LabkitError(
            f"data={getattr(data, 'name', data)!r}: a sweep needs a number by which to compare trials, and only fruit "
            "has one, since its test scenes exist with either fruit. Sweep over labkit.fruit(); on your own pictures, "
            "use labkit train and look at the sample grids."
        )
    if ranks.count() > 1:
        raise LabkitError("a sweep's workers are independent: start each by itself, without torchrun.")
    check_known("pruner", pruner, PRUNERS)
    recipe = recipes.find("fruit", model)
    recipe = dataclasses.replace(recipe, size=data.size, steps=recipe.steps if steps is None else steps)
    for name, number, least in (("trials", trials, 1), ("steps", recipe.steps, 1), ("stale_seconds", stale_seconds, 1)):
        if number < least:
            raise LabkitError(f"{name}={number}: at least {least} is needed.")
    options = dict(seed=seed, workers=workers, save_minutes=save_minutes)
    worker = Worker(data, recipe, parse(space, model), options, pick_device(device))
    worker.check()
    worker.open(Path(storage), trials, pruner, stale_seconds)
    worker.work(say)
    return table(storage)


def table(storage: Path | str) -> pandas.DataFrame:
    """The trials of a sweep so far, the best first; those that were not trained to the end come last.

    Returns:
        One row a trial, by its number: state ("complete", "pruned", "failed", or "running", which includes those that
        wait to be taken up); value (shortfall), fg and bg in percent, each as last measured; the settings; folder; why
        it failed.

    Raises:
        LabkitError: there is no such journal, or it cannot be used.
    """
    import pandas

    journal.check_optuna()
    study, rows = journal.open_to_read(Path(storage)), []
    for trial in study.get_trials(deepcopy=False):
        state = {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
        last = max(trial.intermediate_values, default=None)
        value = trial.value if last is None else trial.intermediate_values[last]
        scores = {name: trial.user_attrs.get(name) for name in GOAL}
        where = {
            "folder": str(journal.trial_folder(Path(storage), trial.number)),
            "why": trial.user_attrs.get("why", ""),
        }
        rows.append({"trial": trial.number, "state": state, "value": value, **scores, **trial.params, **where})
    rows.sort(key=lambda row: (row["state"] != "complete", math.inf if row["value"] is None else row["value"]))
    return pandas.DataFrame(rows, columns=None if rows else ["trial", "state", "value"]).set_index("trial")
