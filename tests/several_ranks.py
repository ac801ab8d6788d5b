"""Jobs for several ranks, and a function that runs one: in real processes, over gloo, without torchrun."""

import copy
import functools
import socket
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
import torch
from nhwc_formulas import instead_of_kernels
from tiny import TINY, two_layers

import labkit
from labkit import ranks
from labkit.data.batches import UnpairedData
from labkit.measure.same import Update
from labkit.variants.registry import SPEEDUPS, excluded

COMPOSABLE = [name for name in SPEEDUPS if name not in {"data_parallel", *excluded("data_parallel")}]
STEPS, BATCH = 20, 4


def run(n: int, job: Callable[[Path], dict], folder: Path) -> dict:
    """What rank 0 of `n` answers, of a job of this module or another one; the text of an error if one fails."""
    launch(n, folder, _answer, job, folder)
    return torch.load(folder / "answer.pt", weights_only=False)


def launch(n: int, folder: Path, function: Callable, *arguments: object, statuses: tuple[int, ...] = ()) -> list[str]:
    """Runs ``function(*arguments)`` in each of `n` ranks, as torchrun would, and gives their messages."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(n)}
    messages = [folder / f"messages of rank {rank}" for rank in range(n)]
    started = [
        forked.start(path, function, *arguments, environment={**where, "RANK": str(rank)})
        for rank, path in enumerate(messages)
    ]
    for process in started:
        process.join(300)
    texts = [path.read_text() for path in messages]
    assert [process.exitcode for process in started] == list(statuses or [0] * n), texts
    return texts


def _answer(job: Callable[[Path], dict], folder: Path) -> None:
    """Runs the job as one of the ranks; rank 0 saves its answer for `run`."""
    with ranks.process_group():
        answered = job(folder)
        if ranks.number() == 0:
            torch.save(answered, folder / "answer.pt")


def model(bits16: bool = False, **settings) -> labkit.CycleGAN:
    torch.manual_seed(0)
    made = labkit.CycleGAN(**{**TINY, **(dict(ngf=8, ndf=8) if bits16 else {}), "pool_size": 0, **settings})
    return made if bits16 else made.double()


def pictures(k: int, bits16: bool = False) -> tuple[torch.Tensor, ...]:
    """This rank's part of batch k."""
    random = torch.Generator().manual_seed(k)
    size, dtype = (32, torch.float32) if bits16 else (16, torch.float64)
    whole = (torch.rand(BATCH, 3, size, size, generator=random, dtype=dtype) * 2 - 1 for _ in range(2))
    return tuple(half.chunk(ranks.count())[ranks.number()] for half in whole)


def trained(*names: str, steps: int = STEPS, **settings) -> dict:
    """Losses and weights of a run; of its first step the gradients, too, if it is in 16 bits."""
    bits16 = any(SPEEDUPS[name].tolerance != "exact" for name in names)
    step = labkit.make_step(model(bits16, **settings), *names, emulate=True)  # the rounding is the same
    if bits16:
        return {"first": Update.of(step, pictures(0, bits16))}
    losses = [{name: loss.item() for name, loss in step(*pictures(k)).items()} for k in range(steps)]
    return {"losses": losses, "weights": step.model.state_dict()}


def everything(folder: Path) -> dict:
    """The baseline, and every speed-up that composes, shared by these ranks."""
    SPEEDUPS["compile"].backend = "eager"  # traced, and run as it is
    instead_of_kernels(pytest.MonkeyPatch())
    answers = {"": trained("data_parallel")} | {name: trained(name, "data_parallel", steps=4) for name in COMPOSABLE}
    answers["pools"] = pools()
    answers["compared"] = compared()
    train_up_to(8, folder)
    return answers


def compared() -> dict:
    """What `labkit.compare` says in several ranks."""
    small = functools.partial(model, generator=two_layers())
    stacks = {"baseline": [], "batched": ["batched"], "halved": [Halved], "on one rank": [ReportsOtherwise]}
    steps = {n: lambda own=own: labkit.make_step(small(), *own, "data_parallel") for n, own in stacks.items()}
    table = labkit.compare(steps, pictures(0), rounds=6)
    return {"table": table, "ranks": table.attrs["stamp"]["ranks"]}


class Halved(labkit.Step):
    """Learns from half of each gradient."""

    def backward(self, loss: torch.Tensor, player: str) -> None:
        super().backward(0.5 * loss, player)


class ReportsOtherwise(labkit.Step):
    """Says another loss on the second rank, which the first one does not see."""

    def run(self, batch: dict) -> dict:
        losses = super().run(batch)
        return losses | {"G_A": losses["G_A"] * (1 + ranks.number())}


def pools() -> dict:
    """A state saved by these ranks, and that after two more steps, once without and once with loading it again."""
    step = labkit.make_step(model(pool_size=5), "data_parallel")
    for k in range(6):
        step(*pictures(k))
    saved = copy.deepcopy(step.state_dict())
    ends = []
    for _ in range(2):
        for k in range(6, 9):
            step(*pictures(k))
        ends.append(copy.deepcopy(step.state_dict()))
        step.load_state_dict(saved)
    return {"saved": saved, "ends": ends}


class Noting(UnpairedData):
    """The fruit; which example was asked for by which rank stands in a file."""

    def example(self, seed: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        with open(self.name, "a", encoding="utf-8") as file:
            file.write(f"{position} {ranks.number()}\n")
        return super().example(seed, position)


def train_up_to(steps: int, folder: Path) -> None:
    """Trains so far, by as many ranks as there are; continues from the run in the folder, if any."""
    fruit = labkit.fruit(n=12, size=32, seed=0)
    sets = (fruit.train_a, fruit.train_b, fruit.test_a, fruit.test_b)
    data = Noting(str(folder / "examples"), fruit.size, *sets)
    shared = ["data_parallel"] if ranks.count() > 1 else []
    step = labkit.make_step(model(pool_size=5).float(), *shared)
    labkit.fit(step, data, steps, BATCH, checkpoint=folder / "run")
