"""Jobs for ranks that exchange weights: modules apart, and weights averaged. See several_ranks.py."""

import copy
from pathlib import Path

import torch
from apart import apart
from averaging import OUTER, averaged

import labkit
from labkit import ranks
from labkit.training import checkpoints

SMALL = dict(ngf=4, ndf=4, blocks=2, pool_size=3)


def model(**settings) -> labkit.DeviationGAN:
    torch.manual_seed(0)
    return labkit.DeviationGAN(**{**SMALL, **settings}).double()


def pictures(k: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(k)
    return tuple(torch.rand(2, 3, 24, 24, generator=random, dtype=torch.float64) * 2 - 1 for _ in range(2))


def trained(step: labkit.Step, first: int, last: int) -> list[dict[str, float]]:
    return [{name: loss.item() for name, loss in step(*pictures(k)).items()} for k in range(first, last)]


def modules(folder: Path) -> dict:
    """Runs with an exchange in every step and in every third one, unbroken and gone on with from a saved state."""
    every = apart(model(), exchange_every=1)
    answers = {"every step": {"losses": trained(every, 0, 20), "state": every.state_dict()}}
    third = apart(model(), exchange_every=3)
    trained(third, 0, 4)
    saved = copy.deepcopy(third.state_dict())
    trained(third, 4, 9)
    resumed = apart(model(), exchange_every=3)
    resumed.load_state_dict(saved)
    trained(resumed, 4, 9)
    answers["third"], answers["resumed"] = third.state_dict(), resumed.state_dict()
    step = apart(model().float(), exchange_every=4)
    labkit.fit(step, labkit.fruit(n=12, size=24), 6, checkpoint=folder / "run")
    return answers | {"run": {"ended": step.model.state_dict(), "saved": checkpoints.load(folder / "run")}}


def alike(folder: Path) -> dict:
    """Ranks that average: on the same pictures, on their own, with an outer optimiser, gone on with."""
    same = averaged(model(pool_size=0), average_every=2)
    answers = {"same": {"losses": trained(same, 0, 6), "weights": same.model.state_dict()}}
    own = averaged(model(), average_every=3)
    for k in range(4):
        own(*pictures(2 * k + ranks.number()))
        answers[f"apart after {k + 1}"] = spread(own.model)
    saved = copy.deepcopy(own.state_dict())
    resumed = averaged(model(), average_every=3)
    resumed.load_state_dict(saved)
    for step in (own, resumed):
        for k in range(4, 8):
            step(*pictures(2 * k + ranks.number()))
    answers |= {"saved": saved, "own": own.state_dict(), "resumed": resumed.state_dict()}
    plain, outer, diloco = (
        averaged(model(pool_size=0), average_every=2, outer=outer)
        for outer in (None, dict(lr=1.0, momentum=0.0), OUTER)
    )
    for step in (plain, outer, diloco):
        for k in range(4):
            step(*pictures(2 * k + ranks.number()))
    first = model().state_dict()
    weights = {name: step.model.state_dict() for name, step in (("plain", plain), ("outer", outer), ("diloco", diloco))}
    return answers | weights | {"first": first}


def spread(of: torch.nn.Module) -> float:
    """The largest difference of a weight between two ranks."""
    mine = torch.cat([weight.detach().flatten() for weight in of.parameters()])
    rank_0 = mine.clone()
    torch.distributed.broadcast(rank_0, 0)
    return ranks.largest([(mine - rank_0).abs().max().item()])[0]


def everything(folder: Path) -> dict:
    return {"modules": modules(folder), "alike": alike(folder)}
