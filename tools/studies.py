"""Measure what notebooks 07, 08, 10 and 11 show of trainings on the fruit, and write it to data/quality/STUDY.json.

    python -m tools.studies one_generator | ablation | deviation | lighter | batch      # one core, an hour or two
    torchrun --standalone --nproc-per-node=3 -m tools.studies apart                     # two cores, an hour
    torchrun --standalone --nproc-per-node=2 -m tools.studies averaged                  # the same
    python -m tools.studies full_size                                                   # one core, ten minutes
    python -m tools.studies jobs                                                        # two cores, ten minutes

Set OMP_NUM_THREADS=1 for all of them. The first five train one model after another. After every run their file holds
the curves so far, and data/quality/STUDY/ the best pictures of each run in its first 100 seconds: a row of test
pictures, then a row a seed. "deviation" writes its models to data/checkpoints as well.

"apart" trains the modules of a DeviationGAN on a rank each, with an exchange of weights every 1 to 1,000 steps.
"averaged" trains the whole model on two ranks, which average their weights every 1 to 512 steps, or gradients.

"full_size" times a step of 256 x 256 pictures, CycleGAN against one generator, by processor time. "jobs" times a
training by itself, and two and three of them at once, each `labkit train` with a learning rate of its own.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

import pandas
import torch
from torchvision.utils import make_grid

import labkit
from labkit import ranks
from labkit.course.shipped import DATA, STUDIED
from labkit.data.batches import batches
from labkit.data.fruit import FruitData
from labkit.data.images import write_picture
from labkit.measure import alternate, save, shortfall, step_flops
from labkit.measure.quality import stamp_with
from labkit.models.model import Model, run_network
from labkit.models.step import Step
from labkit.parallel import OUTER, apart, averaged
from labkit.parallel.apart import RanksApart
from labkit.recipes import FRUIT, FRUIT_ONE_GENERATOR
from labkit.training import checkpoints
from labkit.training.run import Run

SECONDS = 100  # the best pictures are looked for in these
FIRST = 500  # steps of an autoencoder that is trained first
Maker = Callable[[], Step]


def cyclegan(lr: float = FRUIT.lr, **settings: object) -> Maker:
    """Makes a step of the recipe's CycleGAN, with other settings."""
    return lambda: labkit.make_step(labkit.CycleGAN(**FRUIT.model | settings), lr=lr)


def one_generator(**settings: object) -> Maker:
    """Makes a step of the recipe's `DeviationGAN`, with other settings."""
    return lambda: labkit.make_step(labkit.DeviationGAN(**FRUIT_ONE_GENERATOR.model | settings))


def autoencoder_first() -> Step:
    """A step of translator and discriminator, on an autoencoder that has learned; `before` is what that took."""
    first = one_generator(stage="autoencoder")()
    batch = (to_judge[:1], to_judge[1:2])
    before["flops"] = FIRST * step_flops(first, batch)
    before["seconds"] = FIRST * median(alternate({"step": lambda: first(*batch)}, clock=time.process_time)["step"])
    labkit.fit(first, data, FIRST, seed=torch.initial_seed())
    step = one_generator(stage="translation")()
    step.model.load_state_dict(first.model.state_dict())
    return step


LIGHT = (
    "9blocks",
    "3blocks",
    *(f"9blocks_{kind}" for kind in ("narrow", "tapered", "separable", "grouped", "inverted")),
)
# Larger batches, as several devices share them: with the learning rate of batch 1, and with the one that grows as the
# square root of the batch, the rule for Adam (Malladi et al. 2022).
SCALED = {"batch 1": (1, 0.0)} | {
    f"batch {batch}{rule}": (batch, power)
    for batch in (2, 4, 8)
    for rule, power in {"": 0.0, ", lr x root": 0.5}.items()
}
STUDIES: dict[str, tuple[dict[str, Maker], dict[str, int], int]] = {  # makers, steps of each, seeds
    "one_generator": (
        {
            "CycleGAN": cyclegan(),
            "CycleGAN without identity": cyclegan(lambda_identity=0.0),
            "one generator, A only": one_generator(),
            "one generator, both domains": one_generator(consistency="deviation_both"),
        },
        {"CycleGAN": 1500, "CycleGAN without identity": 1500},
        5,
    ),
    "ablation": (
        {
            "all four changes": one_generator(),
            "two translators": one_generator(translators=2),
            "two autoencoders": one_generator(autoencoders=2),
            "autoencoder first": autoencoder_first,
            "pictures judged": one_generator(judged="pictures"),
            "cycle": one_generator(consistency="cycle", translators=2),
        },
        {"autoencoder first": 2000 - FIRST},
        3,
    ),
    "deviation": ({f"{weight:g}": one_generator(lambda_deviation=weight) for weight in (0, 0.3, 1, 3, 10)}, {}, 1),
    "lighter": (
        {f"resnet_{blocks}": cyclegan(generator=f"resnet_{blocks}") for blocks in LIGHT},
        {f"resnet_{blocks}": FRUIT.steps for blocks in LIGHT},
        5,
    ),
    "batch": (
        {name: cyclegan(lr=FRUIT.lr * batch**power) for name, (batch, power) in SCALED.items()},
        {name: 2 * FRUIT.steps // batch for name, (batch, _) in SCALED.items()},
        3,
    ),
}


def learning_curves(
    makers: Mapping[str, Maker],
    data: FruitData,
    steps: Mapping[str, int],
    seeds: Sequence[int],
    batch_sizes: Mapping[str, int],
    on_look: Callable[[Run, dict], None],
    every: int = 100,
) -> pandas.DataFrame:
    """Trains each step with every seed, and measures `labkit.quality` after every `every` pictures of either domain.

    A machine's speed changes within an hour of training. So the steps are timed in turn, before anything else, and a
    run's time is its number of steps times the median of these measurements.

    Args:
        makers: functions that make a step with new weights, by name; the seed determines weights and batches.
        data: the fruit.
        steps: how many to train for, by name.
        seeds: of the runs.
        batch_sizes: pictures of each domain in a step, by name.
        on_look: called after each measurement with the `Run` and the row.
        every: pictures between two measurements of quality, rounded down to whole batches.

    Returns:
        One row a measurement, with the numbers of `labkit.quality` and these columns. ``attrs["step_seconds"]`` holds
        the steps' times.

        | column | unit | meaning |
        |---|---|---|
        | name, seed | | of the run |
        | images | | of either domain, seen so far |
        | seconds | s | processor time on a CPU, wall time on a GPU |
        | flops | | floating-point operations so far |
    """
    once = {name: make() for name, make in makers.items()}
    device = next(next(iter(once.values())).model.parameters()).device
    grey = {  # the contents change neither time nor FLOPs
        name: torch.zeros(batch, 3, data.size, data.size, device=device) for name, batch in batch_sizes.items()
    }
    flops = {name: step_flops(step, (grey[name], grey[name])) for name, step in once.items()}
    runs = {name: partial(step, grey[name], grey[name]) for name, step in once.items()}
    step_seconds = alternate(runs, clock=time.perf_counter if device.type == "cuda" else time.process_time)
    rows: list[dict] = []
    for seed in seeds:
        for name, make in makers.items():
            torch.manual_seed(seed)
            step, seconds, batch = make(), median(step_seconds[name]), batch_sizes[name]

            def look(run: Run, seed: int = seed, name: str = name, seconds: float = seconds) -> None:
                seen = {"images": batch_sizes[name] * run.done}
                spent = {"seconds": seconds * run.done, "flops": flops[name] * run.done}
                row = {"name": name, "seed": seed, **seen, **spent, **labkit.quality(run.model, data)}
                rows.append(row)
                on_look(run, row)

            often = max(1, every // batch)
            labkit.fit(
                step,
                data,
                steps[name],
                batch,
                seed=seed,
                report_every=often,
                sample_every=steps[name],
                callbacks=[look],
            )
    table = pandas.DataFrame(rows)
    table.attrs = {"step_seconds": step_seconds}
    return table


def learn(study: str) -> None:
    """Trains what the study asks for, seed by seed, and writes what is known after each run."""
    makers, steps, seeds = STUDIES[study]
    steps = {name: FRUIT_ONE_GENERATOR.steps for name in makers} | steps
    rows: list[dict] = []
    best: dict[tuple[str, int], float] = {}
    pictures = {name: [to_judge] for name in makers}

    def look(run: Run, row: dict) -> None:
        print(*(f"{key} {value:.4g}" if key != "name" else value for key, value in row.items()), flush=True)
        name, seed = row["name"], row["seed"]
        falls_short = shortfall(pandas.DataFrame([row]))[0]
        if row["seconds"] <= SECONDS and falls_short < best.get((name, seed), float("inf")):
            best[name, seed] = falls_short
            pictures[name][1 + seed :] = [run_network(run.model.translator("AtoB"), to_judge)]
        rows.append(row)
        if run.done == steps[name]:
            write(pandas.DataFrame(rows))
            if study == "deviation":
                keep(run.model, name)

    def write(table: pandas.DataFrame) -> None:
        if "autoencoder first" in makers:
            table.loc[table["name"] == "autoencoder first", list(before)] += list(before.values())
        table.attrs = {"stamp": stamp_with(data), **table.attrs, "steps": steps}
        save(table, DATA / "quality" / f"{study}.json")
        for name, of_name in pictures.items():
            grid = make_grid(labkit.to_uint8(torch.cat(of_name)), nrow=STUDIED, padding=0)
            write_picture(grid, DATA / "quality" / study / f"{name}.png")

    batches = {name: SCALED[name][0] if study == "batch" else 1 for name in makers}
    write(learning_curves(makers, data, steps, range(seeds), batches, look))


def keep(model: Model, name: str) -> None:
    """Writes a model's weights, in 16 bits, as a checkpoint that `labkit.load_model` reads."""
    weights = {key: weight.half() for key, weight in model.state_dict().items()}
    state = {"kind": model.kind, "settings": model.settings, "step": {"model": weights}}
    checkpoints.save(state, DATA / "checkpoints" / f"deviation_{name}")


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


def learn_together(study: str) -> None:
    """Trains what the study asks for, seed by seed; rank 0 writes what is known after each run."""
    makers, batch_size = TOGETHER[study]
    steps = FRUIT_ONE_GENERATOR.steps // batch_size
    rows: list[dict] = []
    judged = deviation_gan()
    attrs = {"steps": steps, "batch_size": batch_size, "bytes": sum(map(_bytes, judged.parameters()))}
    attrs["step_seconds"] = seconds = times_of_modules() if study == "apart" else times_of_ranks(batch_size)
    slowest = max(median(each) for name, each in seconds.items() if name != "one process")
    flops = step_flops(labkit.make_step(deviation_gan()), (torch.zeros(batch_size, 3, data.size, data.size),) * 2)
    for seed in SEEDS:
        for name, make in makers.items():
            torch.manual_seed(seed)
            step = make()
            stream = batches(
                data, batch_size, 0, steps, seed=seed, rank=ranks.number() % step.shares, ranks=step.shares
            )
            for done, pictures in enumerate(stream, start=1):
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
                table = pandas.DataFrame(rows)
                table.attrs = {"stamp": stamp_with(data), **attrs}
                save(table, DATA / "quality" / f"{study}.json")


def times_of_modules() -> dict[str, list[float]]:
    """Processor seconds of a step of one process, and of each module's step without the exchange.

    Every rank runs all of them in turn, since `alternate` gives the times of the slowest rank.
    """
    mine = apart(deviation_gan(), exchange_every=10**9)
    picture = torch.zeros(1, 3, data.size, data.size)
    own_run = super(RanksApart, mine).run  # without the exchange of losses

    def run(module: str) -> None:
        mine.module = module
        own_run(mine.inputs(picture, picture))

    runs = {module: partial(run, module) for module in mine.players}
    alone = labkit.make_step(deviation_gan())
    return alternate({"one process": partial(alone, picture, picture), **runs}, clock=time.process_time)


def times_of_ranks(batch_size: int) -> dict[str, list[float]]:
    """Processor seconds of a step of one process, and of a rank's step on its part of the batch."""
    step = labkit.make_step(deviation_gan())
    batches = {"one process": batch_size, "a rank": batch_size // ranks.count()}
    pictures = {name: torch.zeros(size, 3, data.size, data.size) for name, size in batches.items()}
    runs = {name: partial(step, real, real) for name, real in pictures.items()}
    return alternate(runs, clock=time.process_time)


def _bytes(weight: torch.Tensor) -> int:
    return weight.numel() * weight.itemsize


RATES, STEPS, ROUNDS = (2e-4, 5e-4, 1e-3), 250, 5


def seconds_of(jobs: int) -> float:
    """The seconds until the last of so many jobs that start at once has ended, including the start of Python."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "labkit", "train", "--data", "fruit", "--device", "cpu"]
                + ["--steps", str(STEPS), "--lr", str(rate), "--out", f"{folder}/{rate}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rate in RATES[:jobs]
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
    save(table, DATA / "quality" / "full_size.json")


def time_jobs() -> None:
    """Times one to three trainings at once, in turn, since the machine's speed changes."""
    rows = [
        {"round": number, "jobs": jobs, "seconds": seconds_of(jobs)} for number in range(ROUNDS) for jobs in (1, 2, 3)
    ]
    table = pandas.DataFrame(rows)
    table.attrs = {"stamp": stamp_with(data), "steps": STEPS, "rates": list(RATES)}
    save(table, DATA / "quality" / "jobs.json")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of models that are expected to fail: that is shown
    study = sys.argv[1]
    data, before = labkit.fruit(), {"images": FIRST}
    to_judge = labkit.to_float(torch.cat([data.test_a[: STUDIED - 3], data.test_b[:3]]))
    if study in TOGETHER:
        with ranks.process_group():
            learn_together(study)
    else:
        {"full_size": time_full_size, "jobs": time_jobs}.get(study, lambda: learn(study))()
