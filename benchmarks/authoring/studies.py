"""Measure what notebooks 07, 08, 10 and 11 show of trainings on the fruit, and write it to data/quality/STUDY.json.

    python -m benchmarks.authoring.studies one_generator                                 # one core, an hour or two
    python -m benchmarks.authoring.studies ablation | deviation | lighter | batch        # the same
    torchrun --standalone --nproc-per-node=3 -m benchmarks.authoring.studies apart       # two cores, an hour
    torchrun --standalone --nproc-per-node=2 -m benchmarks.authoring.studies averaged    # the same
    python -m benchmarks.authoring.studies full_size                                     # one core, ten minutes
    python -m benchmarks.authoring.studies jobs                                          # two cores, ten minutes

Set OMP_NUM_THREADS=1 for all of them. The first five train one model after another. After every run their file holds
the curves so far, and data/quality/STUDY/ the best pictures of each run in its first 100 seconds: a row of test
pictures, then a row a seed. "deviation" writes its models to data/checkpoints as well.

"apart" trains the modules of a DeviationGAN on a rank each, with an exchange of weights every 1 to 1,000 steps.
"averaged" trains the whole model on two ranks, which average their weights every 1 to 512 steps, or gradients.

"full_size" times a step of 256 x 256 pictures, CycleGAN against one generator, by processor time. "jobs" times a
training by itself, and two and three of them at once, each `labkit train` with another learning rate.
"""

import itertools
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas
import torch
from torchvision.utils import make_grid

import labkit
from examples.parallel.apart import Alone, apart
from examples.parallel.averaging import OUTER, averaged
from labcourse.shipped import DATA, STUDY_PICTURES
from labkit import ranks
from labkit.data.batches import batches
from labkit.data.fruit import FruitData
from labkit.data.images import write_picture
from labkit.measure import alternate, stamp, step_flops
from labkit.measure.quality import shortfall
from labkit.measure.tables import write_table
from labkit.models.model import Model, run_network
from labkit.models.step import Step
from labkit.networks.light import LIGHT
from labkit.recipes import FRUIT, FRUIT_ONE_GENERATOR
from labkit.training import checkpoints
from labkit.training.run import Run

PICTURES_BETWEEN_LOOKS = 100  # of either domain
SECONDS_FOR_PICTURES = 100  # the best pictures of these are kept
AUTOENCODER_STEPS = 500  # of an autoencoder that is trained first
Maker = Callable[[], Step]


def cyclegan(lr: float = FRUIT.lr, **settings: object) -> Maker:
    """Makes a step of the recipe's CycleGAN, with other settings."""
    return lambda: labkit.make_step(labkit.CycleGAN(**FRUIT.model | settings), lr=lr)


def one_generator(**settings: object) -> Maker:
    """Makes a step of the recipe's `DeviationGAN`, with other settings."""
    return lambda: labkit.make_step(labkit.DeviationGAN(**FRUIT_ONE_GENERATOR.model | settings))


class Training(NamedTuple):
    """The training that a study repeats with each seed; `batch` pictures of each domain a step.

    `first` makes a step that is trained before it, for `AUTOENCODER_STEPS` steps, and whose weights it takes over.
    """

    make: Maker
    steps: int = FRUIT_ONE_GENERATOR.steps
    batch: int = 1
    first: Maker | None = None


STUDIES: dict[str, tuple[int, dict[str, Training]]] = {  # seeds, and trainings by name
    "one_generator": (
        5,
        {
            "CycleGAN": Training(cyclegan(), 1500),
            "CycleGAN without identity": Training(cyclegan(lambda_identity=0.0), 1500),
            "one generator, A only": Training(one_generator()),
            "one generator, both domains": Training(one_generator(consistency="deviation_both")),
        },
    ),
    "ablation": (
        3,
        {
            "all four changes": Training(one_generator()),
            "two translators": Training(one_generator(translators=2)),
            "two autoencoders": Training(one_generator(autoencoders=2)),
            "autoencoder first": Training(
                one_generator(stage="translation"), 2000 - AUTOENCODER_STEPS, first=one_generator(stage="autoencoder")
            ),
            "pictures judged": Training(one_generator(judged="pictures")),
            "cycle": Training(one_generator(consistency="cycle", translators=2)),
        },
    ),
    "deviation": (
        1,
        {f"{weight:g}": Training(one_generator(lambda_deviation=weight)) for weight in (0, 0.3, 1, 3, 10)},
    ),
    "lighter": (
        5,
        {
            name: Training(cyclegan(generator=name), FRUIT.steps)
            for name in ("resnet_9blocks", "resnet_3blocks", *LIGHT)
        },
    ),
    # Larger batches, as several devices share them: with the learning rate of batch 1, and with the one that grows as
    # the square root of the batch, the rule for Adam (Malladi et al. 2022).
    "batch": (
        3,
        {"batch 1": Training(cyclegan(), 2 * FRUIT.steps)}
        | {
            f"batch {batch}{rule}": Training(cyclegan(lr=FRUIT.lr * batch**power), 2 * FRUIT.steps // batch, batch)
            for batch in (2, 4, 8)
            for rule, power in {"": 0.0, ", lr x root": 0.5}.items()
        },
    ),
}


def write(rows: list[dict], study: str, data: FruitData, folder: Path = DATA, **attrs: object) -> None:
    """Writes a study's rows, with the stamp of runs: the machine and the data."""
    table, about = pandas.DataFrame(rows), {"data": data.name, "size": data.size, "pictures": len(data.train_a)}
    table.attrs = {"stamp": stamp() | about, **attrs}
    write_table(table, folder / "quality" / f"{study}.json")


def learn(study: str, data: FruitData, folder: Path = DATA) -> None:
    """Trains what the study asks for, seed by seed, and writes what is known after each run into `folder`.

    A machine's speed changes within an hour of training. So the steps are timed in turn, before anything else, and a
    run's time is its number of steps times the median of these measurements. A row of the table is a look at a run:

    | column | unit | meaning |
    |---|---|---|
    | name, seed | | of the run |
    | images | | of either domain, seen so far |
    | seconds | s | processor time |
    | flops | | floating-point operations so far |
    | fg, bg, changed | | as from `labkit.quality` |
    """
    seeds, trainings = STUDIES[study]
    firsts = {f"{name}, before": Training(one.first, AUTOENCODER_STEPS) for name, one in trainings.items() if one.first}
    grey = {  # the contents change neither time nor FLOPs
        name: (torch.zeros(one.batch, 3, data.size, data.size),) * 2 for name, one in (trainings | firsts).items()
    }
    once = {name: one.make() for name, one in (trainings | firsts).items()}
    flops = {name: step_flops(step, grey[name]) for name, step in once.items()}
    step_seconds = alternate({name: partial(step, *grey[name]) for name, step in once.items()}, clock=time.process_time)
    judged = labkit.to_float(torch.cat([data.test_a[: STUDY_PICTURES - 3], data.test_b[:3]]))
    pictures = {name: [judged] for name in trainings}
    rows: list[dict] = []
    for seed in range(seeds):
        for name, training in trainings.items():
            best = math.inf
            done_before = [(f"{name}, before", AUTOENCODER_STEPS)] if training.first else []

            def look(run: Run, seed: int = seed, name: str = name, done_before: list = done_before) -> None:
                nonlocal best
                done = [(name, run.done), *done_before]
                row: dict = {"name": name, "seed": seed}
                row["images"] = sum(steps * len(grey[each][0]) for each, steps in done)
                row["seconds"] = sum(steps * median(step_seconds[each]) for each, steps in done)
                row["flops"] = sum(steps * flops[each] for each, steps in done)
                rows.append(row | labkit.quality(run.model, data))
                print(rows[-1], flush=True)
                falls_short = shortfall(pandas.DataFrame(rows[-1:]))[0]
                if row["seconds"] <= SECONDS_FOR_PICTURES and falls_short < best:
                    best = falls_short
                    pictures[name][1 + seed :] = [run_network(run.model.translator("AtoB"), judged)]

            torch.manual_seed(seed)
            before = training.first() if training.first else None
            if before:
                labkit.fit(before, data, AUTOENCODER_STEPS, seed=seed)
            step, often = training.make(), max(1, PICTURES_BETWEEN_LOOKS // training.batch)
            if before:
                step.model.load_state_dict(before.model.state_dict())
            options: dict = dict(report_every=often, sample_every=training.steps, callbacks=[look])
            labkit.fit(step, data, training.steps, training.batch, seed=seed, **options)
            steps = {each: one.steps for each, one in trainings.items()}
            write(rows, study, data, folder, step_seconds=step_seconds, steps=steps)
            grid = make_grid(labkit.to_uint8(torch.cat(pictures[name])), nrow=STUDY_PICTURES, padding=0)
            write_picture(grid, folder / "quality" / study / f"{name}.png")
            if study == "deviation":
                keep(step.model, folder / "checkpoints" / f"deviation_{name}")


def keep(model: Model, folder: Path) -> None:
    """Writes a model's weights, in 16 bits, as a checkpoint that `labkit.load_model` reads."""
    weights = {key: weight.half() for key, weight in model.state_dict().items()}
    checkpoints.write_checkpoint({"kind": model.kind, "settings": model.settings, "step": {"model": weights}}, folder)


def deviation_gan() -> Model:
    """The recipe's `DeviationGAN`."""
    return labkit.DeviationGAN(**FRUIT_ONE_GENERATOR.model)


APART: dict[str, Maker] = {
    f"every {every:,} steps": lambda every=every: apart(deviation_gan(), exchange_every=every)  # type: ignore[misc]
    for every in (1, 10, 100, 1000)
}
AVERAGED: dict[str, Maker] = {"gradients": lambda: labkit.make_step(deviation_gan(), "data_parallel")} | {
    f"every {every:,} steps{how}": lambda every=every, outer=outer: averaged(  # type: ignore[misc]
        deviation_gan(), average_every=every, outer=outer
    )
    for every, how, outer in (*((every, "", None) for every in (1, 8, 64, 512)), (64, ", outer", OUTER))
}
TOGETHER = {"apart": (APART, 1), "averaged": (AVERAGED, 2)}  # makers, batch size
SEEDS, LOOKS = range(3), 20  # measurements of each run


def learn_together(study: str, data: FruitData) -> None:
    """Trains what the study asks for, seed by seed; rank 0 writes what is known after each run."""
    makers, batch_size = TOGETHER[study]
    steps = FRUIT_ONE_GENERATOR.steps // batch_size
    rows: list[dict] = []
    judged = deviation_gan()
    seconds = times_together(study, batch_size, data.size)
    attrs = {"steps": steps, "batch_size": batch_size, "step_seconds": seconds}
    attrs["bytes"] = sum(weight.nbytes for weight in judged.parameters())
    slowest = max(median(each) for name, each in seconds.items() if name != "one process")
    flops = step_flops(labkit.make_step(deviation_gan()), (torch.zeros(batch_size, 3, data.size, data.size),) * 2)
    for seed in SEEDS:
        for name, make in makers.items():
            torch.manual_seed(seed)
            step = make()
            mine = {"rank": ranks.number() % step.shares, "ranks": step.shares}
            for done, pictures in enumerate(batches(data, batch_size, 0, steps, seed=seed, **mine), start=1):
                step(*pictures)
                if done % (steps // LOOKS) == 0:
                    state = step.state_dict()  # every rank has to ask for it
                    if ranks.number() == 0:
                        judged.load_state_dict(state["model"])
                        row = {"name": name, "seed": seed, "steps": done, "images": batch_size * done}
                        row |= {"seconds": slowest * done, "flops": flops * done}
                        rows.append(row | labkit.quality(judged, data))
                        print(rows[-1], flush=True)
            if ranks.number() == 0:
                write(rows, study, data, **attrs)


def times_together(study: str, batch_size: int, size: int) -> Mapping[str, list[float]]:
    """Processor seconds of a step of one process, and of a rank's step without an exchange.

    That is each module's for "apart", and a part of the batch for "averaged". Every rank runs all of them in turn,
    since `alternate` gives the times of the slowest rank.
    """
    whole, part = (torch.zeros(n, 3, size, size) for n in (batch_size, max(1, batch_size // ranks.count())))
    alone = labkit.make_step(deviation_gan())
    runs: dict[str, Callable[[], object]] = {"one process": partial(alone, whole, whole)}
    if study == "averaged":
        runs["a rank"] = partial(alone, part, part)
    else:
        for module in deviation_gan().players():
            mine = labkit.make_step(deviation_gan(), type("Mine", (Alone,), dict(module=module)))
            runs[module] = partial(mine, part, part)
    return alternate(runs, clock=time.process_time)


JOB_RATES, JOB_STEPS, JOB_ROUNDS = (2e-4, 5e-4, 1e-3), 250, 5


def seconds_of(jobs: int) -> float:
    """The seconds until the last of `jobs` trainings that start at once has ended, including the start of Python."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        command = f"{sys.executable} -m labkit train --data fruit --device cpu --quiet --steps {JOB_STEPS}".split()
        processes = [
            subprocess.Popen([*command, "--lr", str(rate), "--out", f"{folder}/{rate}"]) for rate in JOB_RATES[:jobs]
        ]
        if any([process.wait() for process in processes]):
            sys.exit("a job failed: run the same labkit train by hand")
        return time.perf_counter() - begun


def time_full_size() -> None:
    """Times a step at full size."""
    makers = {
        "CycleGAN": lambda: labkit.make_step(labkit.CycleGAN()),
        "CycleGAN without identity": lambda: labkit.make_step(labkit.CycleGAN(lambda_identity=0.0)),
        "one generator, both domains": lambda: labkit.make_step(labkit.DeviationGAN(consistency="deviation_both")),
        "one generator, A only": lambda: labkit.make_step(labkit.DeviationGAN()),
    }
    torch.manual_seed(0)
    batch = tuple(torch.rand(1, 3, 256, 256) * 2 - 1 for _ in range(2))
    table = labkit.compare(makers, batch, rounds=6, warmup=1, clock=time.process_time)
    table.attrs["stamp"]["clock"] = "processor time"
    write_table(table, DATA / "quality" / "full_size.json")


def time_jobs(data: FruitData) -> None:
    """Times one to three trainings at once, in turn, since the machine's speed changes."""
    turns = itertools.product(range(JOB_ROUNDS), (1, 2, 3))
    rows = [{"round": number, "jobs": jobs, "seconds": seconds_of(jobs)} for number, jobs in turns]
    write(rows, "jobs", data, steps=JOB_STEPS, rates=list(JOB_RATES))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of models that are expected to fail: that is shown
    study = sys.argv[1]
    if study in TOGETHER:
        with ranks.process_group():
            learn_together(study, labkit.fruit())
    elif study == "full_size":
        time_full_size()
    elif study == "jobs":
        time_jobs(labkit.fruit())
    else:
        learn(study, labkit.fruit())
