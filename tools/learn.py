"""Train on the fruit, over and over, and write to data/quality what notebooks 07, 08 and 10 show of it.

    python tools/learn.py one_generator | ablation | deviation | lighter | batch

Each takes an hour or two on one processor core. After every run, data/quality/STUDY.json holds the curves so far, and
data/quality/STUDY/ the best pictures of each run in its first 100 seconds: a row of test pictures, then a row a seed.
"deviation" writes its models to data/checkpoints as well.
"""

import functools
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import pandas
import torch
from torchvision.utils import make_grid

import labkit
from labkit.course.shipped import DATA, STUDIED
from labkit.data.fruit import FruitData
from labkit.data.images import write_picture
from labkit.measure import alternate, save, shortfall, step_flops
from labkit.measure.quality import stamp_with
from labkit.models.model import Model, run_network
from labkit.models.step import Step
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
    runs = {name: functools.partial(step, grey[name], grey[name]) for name, step in once.items()}
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of models that are expected to fail: that is shown
    data, before = labkit.fruit(), {"images": FIRST}
    to_judge = labkit.to_float(torch.cat([data.test_a[: STUDIED - 3], data.test_b[:3]]))
    learn(sys.argv[1])
