"""How good a model is after how much: images seen, time, FLOPs; over several seeds, with those that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from labkit.data.fruit import FruitData
from labkit.errors import LabkitError
from labkit.evaluation import quality
from labkit.measure.roofline import step_flops
from labkit.measure.timing import synchronise
from labkit.stamp import stamp
from labkit.steps.step import Step
from labkit.training import Run, fit

if TYPE_CHECKING:
    import pandas

GOAL = {"fg": 9.0, "bg": 4.0}  # percent: from here on a reader of the pictures sees oranges in the same scene


def learning_curves(
    makers: Mapping[str, Callable[[], Step]],
    data: FruitData,
    steps: Mapping[str, int] | int,
    seeds: Sequence[int] = (0, 1, 2),
    every: int = 100,
    on_look: Callable[[str, int, Run, dict], None] | None = None,
) -> pandas.DataFrame:
    """Trains each step at batch 1 with every seed, and looks at its `labkit.quality` every `every` steps.

    Seed by seed, each step in turn, so that what changes on the machine meets all of them. Looking costs no time.

    Args:
        makers: functions that make a step with fresh weights, by name; a seed settles those, and the batches.
        data: from `labkit.fruit`.
        steps: how long to train, of all or by name.
        every: steps between two looks.
        on_look: called after each with the name, the seed, the `Run` and the row; its time does not count either.

    Returns:
        A row a look: name; seed; images (of either domain, seen so far); seconds (of processor time on a CPU, by the
        clock on a GPU); flops; and what `labkit.quality` gives. ``attrs["stamp"]`` says on what it was measured.

    Raises:
        LabkitError: as `labkit.fit` and `labkit.quality`, for instance for data without truth.
    """
    import pandas

    rows = []
    for seed in seeds:
        for name, make in makers.items():
            torch.manual_seed(seed)
            step, until = make(), steps if isinstance(steps, int) else steps[name]
            rows += _learn(step, data, until, seed, every, name, on_look)
    table = pandas.DataFrame(rows)
    table.attrs = {"stamp": stamp() | {"data": data.name, "size": data.size, "pictures": len(data.train_a)}}
    return table


def _learn(
    step: Step,
    data: FruitData,
    steps: int,
    seed: int,
    every: int,
    name: str,
    on_look: Callable[[str, int, Run, dict], None] | None,
) -> list[dict]:
    """One run's rows. The clock stands still while it is looked at."""
    weight = next(step.model.parameters())
    clock = time.perf_counter if weight.is_cuda else time.process_time
    flops = step_flops(step, (torch.zeros(1, 3, data.size, data.size).to(weight),) * 2)
    rows: list[dict] = []
    spent, since = 0.0, clock()

    def look(run: Run) -> None:
        nonlocal spent, since
        synchronise()
        spent += clock() - since
        row = {"name": name, "seed": seed, "images": run.done, "seconds": spent, "flops": flops * run.done}
        rows.append(row | quality(run.model, data))
        if on_look is not None:
            on_look(name, seed, run, rows[-1])
        since = clock()

    fit(step, data, steps, seed=seed, report_every=every, sample_every=steps, on_report=look)
    return rows


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
    bg. With three seeds that is a weak claim: a baseline of more seeds has a larger spread.

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
