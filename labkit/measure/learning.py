"""How good a model is after how much: images seen, time, FLOPs; over several seeds, with those that failed."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from labkit.data.fruit import FruitData
from labkit.errors import LabkitError
from labkit.measure.quality import quality
from labkit.measure.record import Batch
from labkit.measure.roofline import step_flops
from labkit.measure.timing import alternate
from labkit.stamp import stamp
from labkit.step import Step
from labkit.training.fit import Run, fit

if TYPE_CHECKING:
    import pandas

GOAL = {"fg": 9.0, "bg": 4.0}  # percent: from here on a reader of the pictures sees oranges in the same scene


def learning_curves(
    makers: Mapping[str, Callable[[], Step]],
    data: FruitData,
    steps: Mapping[str, int] | int,
    seeds: Sequence[int] = (0, 1, 2),
    every: int = 100,
    on_look: Callable[[Run, dict], None] | None = None,
) -> pandas.DataFrame:
    """Trains each step at batch 1 with every seed, and looks at its `labkit.quality` every `every` steps.

    An hour of training does not find a machine equally fast throughout. So the steps are timed in turn, before all
    else, and a run's time is the number of its steps times the median of these.

    Args:
        makers: functions that make a step with fresh weights, by name; a seed settles those, and the batches.
        data: from `labkit.fruit`.
        steps: how long to train, of all or by name.
        every: steps between two looks.
        on_look: called after each with the `Run` and the row.

    Returns:
        A row a look: name; seed; images (of either domain, seen so far); seconds (of processor time on a CPU, by the
        clock on a GPU); flops; and what `labkit.quality` gives. ``attrs["stamp"]`` says on what it was measured,
        ``attrs["step_seconds"]`` holds the steps' times.

    Raises:
        LabkitError: as `labkit.fit` and `labkit.quality`, for instance for data without truth.
    """
    import pandas

    once = {name: make() for name, make in makers.items()}
    flops = {name: step_flops(step, _blank(step, data)) for name, step in once.items()}
    step_seconds = _step_seconds(once, data)
    rows: list[dict] = []
    for seed in seeds:
        for name, make in makers.items():
            torch.manual_seed(seed)
            step, until = make(), steps if isinstance(steps, int) else steps[name]
            seconds = statistics.median(step_seconds[name])

            def look(run: Run, seed: int = seed, name: str = name, seconds: float = seconds) -> None:
                spent = {"seconds": seconds * run.done, "flops": flops[name] * run.done}
                row = {"name": name, "seed": seed, "images": run.done, **spent, **quality(run.model, data)}
                rows.append(row)
                if on_look is not None:
                    on_look(run, row)

            fit(step, data, until, seed=seed, report_every=every, sample_every=until, on_report=look)
    table = pandas.DataFrame(rows)
    table.attrs = {"stamp": stamp_with(data), "step_seconds": step_seconds}
    return table


def stamp_with(data: FruitData) -> dict:
    """What runs were measured on, and with which data."""
    return stamp() | {"data": data.name, "size": data.size, "pictures": len(data.train_a)}


def _blank(step: Step, data: FruitData) -> Batch:
    """A batch of one grey picture of each domain: what is in it changes neither time nor FLOPs."""
    return (torch.zeros(1, 3, data.size, data.size).to(next(step.model.parameters())),) * 2


def _step_seconds(steps: Mapping[str, Step], data: FruitData) -> dict[str, list[float]]:
    on_gpu = any(next(step.model.parameters()).is_cuda for step in steps.values())
    runs = {name: functools.partial(step, *_blank(step, data)) for name, step in steps.items()}
    return alternate(runs, clock=time.perf_counter if on_gpu else time.process_time)


def time_to_quality(curves: pandas.DataFrame, fg: float = GOAL["fg"], bg: float = GOAL["bg"]) -> pandas.DataFrame:
    """What each run took until it passed twice running: fg and bg at most these, in percent, at two looks in a row.

    Once could be luck, since a GAN's quality goes up and down from look to look. The second look counts.

    Args:
        curves: from `learning_curves`.

    Returns:
        A row a run, by name and seed: images, seconds and flops; all NaN for a run that never got there.
    """
    import pandas

    rows = {}
    for run, looks in curves.groupby(["name", "seed"], sort=False):
        passed = (looks["fg"] <= fg) & (looks["bg"] <= bg)
        twice = looks[passed & passed.shift(fill_value=False)]
        rows[run] = twice.iloc[0] if len(twice) else pandas.Series(dtype=float)
    index = pandas.MultiIndex.from_tuples(rows, names=["name", "seed"])
    table = pandas.DataFrame([row.reindex(["images", "seconds", "flops"]) for row in rows.values()], index=index)
    return table.astype(float)


def best_within(curves: pandas.DataFrame, seconds: float) -> pandas.DataFrame:
    """The best look of each run in its first `seconds`: that whose fg and bg, each as a share of its goal, are least.

    Of the two shares the larger decides, since neither can make up for the other.

    Args:
        curves: from `learning_curves`.

    Returns:
        A row a run, by name and seed: the columns of `curves`.

    Raises:
        LabkitError: a run has no look that early.
    """
    early = curves[curves["seconds"] <= seconds]
    for name, seed in curves.set_index(["name", "seed"]).index.unique():
        if not ((early["name"] == name) & (early["seed"] == seed)).any():
            raise LabkitError(f"seconds={seconds:g}: {name}, seed {seed}, was not looked at that early.")
    best = shortfall(early).groupby([early["name"], early["seed"]], sort=False).idxmin()
    return curves.loc[best].set_index(["name", "seed"])


def within_spread(scores: pandas.DataFrame, baseline: str) -> pandas.Series:
    """Which are no worse than `baseline` already is from seed to seed: True or False, by name.

    A name is within the spread if the median over its seeds is at most the worst of the baseline's seeds, in fg and in
    bg. With few seeds that is a weak claim: a baseline of more seeds has a larger spread.

    Args:
        scores: fg and bg in percent, a row a run, by name and seed.
        baseline: one of the names.
    """
    scores = scores[list(GOAL)]
    medians = scores.groupby("name", sort=False).median()
    return (medians <= scores.loc[baseline].max()).all(axis=1)


def shortfall(looks: pandas.DataFrame) -> pandas.Series:
    """How far each look is from the goal: the larger of fg and bg as shares of theirs; 1 and less has reached it."""
    return (looks[list(GOAL)] / list(GOAL.values())).max(axis=1)
