"""Train on the fruit in several processes, over and over, and write to data/quality what notebook 11 shows of it.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node=3 tools/learn_together.py apart
    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node=2 tools/learn_together.py averaged

"apart" trains the modules of a DeviationGAN on a rank each, with an exchange of weights every 1 to 1,000 steps.
"averaged" trains the whole model on two ranks, which average their weights every 1 to 512 steps, or gradients.
Each takes an hour on two processor cores. After every run, data/quality/STUDY.json holds the curves so far.
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median

import pandas
import torch

import labkit
from labkit import ranks
from labkit.course.shipped import DATA
from labkit.data.batches import batches
from labkit.measure import alternate, save, step_flops
from labkit.measure.quality import stamp_with
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.parallel import OUTER, apart, averaged
from labkit.parallel.apart import RanksApart
from labkit.recipes import FRUIT_ONE_GENERATOR

SEEDS, LOOKS = range(3), 20  # measurements of each run


def one_generator() -> Model:
    """The recipe's `DeviationGAN`."""
    return labkit.DeviationGAN(**FRUIT_ONE_GENERATOR.model)


Maker = Callable[[], Step]
APART: dict[str, Maker] = {
    f"every {every:,} steps": lambda every=every: apart(one_generator(), exchange_every=every)  # type: ignore[misc]
    for every in (1, 10, 100, 1000)
}
AVERAGED: dict[str, Maker] = {"gradients": lambda: labkit.make_step(one_generator(), "data_parallel")} | {
    f"every {every:,} steps{how}": lambda every=every, outer=outer: averaged(  # type: ignore[misc]
        one_generator(), average_every=every, outer=outer
    )
    for every, how, outer in (*((every, "", None) for every in (1, 8, 64, 512)), (64, ", outer", OUTER))
}
PICTURES = FRUIT_ONE_GENERATOR.steps  # of each domain, that every run sees
STUDIES = {"apart": (APART, 1), "averaged": (AVERAGED, 2)}  # makers, batch size


def learn(study: str) -> None:
    """Trains what the study asks for, seed by seed; rank 0 writes what is known after each run."""
    makers, batch_size = STUDIES[study]
    steps = PICTURES // batch_size
    rows: list[dict] = []
    judged = one_generator()
    attrs = {"steps": steps, "batch_size": batch_size, "bytes": sum(map(_bytes, judged.parameters()))}
    attrs["step_seconds"] = seconds = times_of_modules() if study == "apart" else times_of_ranks(batch_size)
    slowest = max(median(each) for name, each in seconds.items() if name != "one process")
    flops = step_flops(labkit.make_step(one_generator()), (torch.zeros(batch_size, 3, data.size, data.size),) * 2)
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
    mine = apart(one_generator(), exchange_every=10**9)
    picture = torch.zeros(1, 3, data.size, data.size)
    own_run = super(RanksApart, mine).run  # without the exchange of losses

    def run(module: str) -> None:
        mine.module = module
        own_run(mine.inputs(picture, picture))

    runs = {module: partial(run, module) for module in mine.players}
    alone = labkit.make_step(one_generator())
    return alternate({"one process": partial(alone, picture, picture), **runs}, clock=time.process_time)


def times_of_ranks(batch_size: int) -> dict[str, list[float]]:
    """Processor seconds of a step of one process, and of a rank's step on its part of the batch."""
    step = labkit.make_step(one_generator())
    batches = {"one process": batch_size, "a rank": batch_size // ranks.count()}
    pictures = {name: torch.zeros(size, 3, data.size, data.size) for name, size in batches.items()}
    runs = {name: partial(step, real, real) for name, real in pictures.items()}
    return alternate(runs, clock=time.process_time)


def _bytes(weight: torch.Tensor) -> int:
    return weight.numel() * weight.itemsize


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of models that are expected to fail: that is shown
    data = labkit.fruit()
    with ranks.process_group():
        learn(sys.argv[1])
