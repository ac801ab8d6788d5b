"""Weights averaged instead of gradients: each rank trains the whole model on its own pictures, for many steps.

Far fewer bytes go through the network than with `data_parallel`, one exchange in `average_every` steps, and another
algorithm is computed: the ranks' weights drift apart between two exchanges. Sources: Stich 2019, "Local SGD Converges
Fast and Communicates Little", and Douillard et al. 2023, "DiLoCo", algorithm 1. The averaging is PyTorch's own,
torch.distributed.algorithms.model_averaging.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.profiler import record_function

from labkit import ranks
from labkit.models.model import Model
from labkit.models.step import RANGE, Batch, Step
from labkit.variants.registry import make_step
from labtrace.errors import check_at_least

OUTER = dict(lr=0.7, momentum=0.9, nesterov=True)  # of DiLoCo's outer optimiser, as its paper found best


def averaged(model: Model, average_every: int, outer: dict[str, Any] | None = None) -> Step:
    """The step of a rank that trains the whole model, and averages its weights with the other ranks now and then.

    Every rank has its own part of the batch, its own moments of Adam, and a pool of its own. The losses are this
    rank's. A checkpoint holds the mean of the weights, with rank 0's moments and pools. All ranks that continue
    from one begin with these, and with an outer optimiser without momentum.

    Args:
        model: with the same weights on each rank.
        average_every: steps from one average to the next.
        outer: with settings of `torch.optim.SGD`, such as `OUTER`, the ranks do not take their mean: this optimiser
            steps towards it from the previous exchange's weights, as in DiLoCo.

    Raises:
        LabkitError: the number does not fit.
    """
    check_at_least(1, average_every=average_every)
    return make_step(model, type("Averaged", (Averaged,), dict(average_every=average_every, outer=outer)))


class Averaged(Step):
    """Learns alone, and averages.

    Attributes:
        average_every: steps from one average to the next.
        outer: settings of the outer optimiser. None takes the mean itself.
        done: steps of this process so far.
    """

    average_every: int
    outer: dict[str, Any] | None
    done = 0

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.ranks = self.shares = ranks.count()
        for pool in self.model.pools.values():
            pool.random.seed(f"{pool.random.random()} {ranks.number()}")  # other fakes on each rank
        if self.outer is not None:
            self.anchor = [weight.detach().clone() for weight in self.model.parameters()]
            self.outer_optimizer = torch.optim.SGD(self.anchor, **self.outer)
        return super().build(betas)

    def run(self, batch: Batch) -> dict[str, Tensor]:
        losses = super().run(batch)
        self.done += 1
        if self.done % self.average_every == 0:
            with record_function(f"{RANGE}average"):
                self.average()
        return losses

    def average(self) -> None:
        """Averages the weights, so that all ranks have the same."""
        self.take_mean()
        if self.outer is None:
            return
        with torch.no_grad():
            for weight, before in zip(self.model.parameters(), self.anchor, strict=True):
                before.grad = before - weight
            self.outer_optimizer.step()
            for weight, now in zip(self.model.parameters(), self.anchor, strict=True):
                weight.copy_(now)

    def finish(self) -> None:
        self.take_mean()

    def take_mean(self) -> None:
        """Replaces each weight by its mean over the ranks."""
        average_parameters(self.model.parameters(), dist.group.WORLD)  # type: ignore[arg-type]  # there is one

    def state_dict(self) -> dict[str, Any]:
        """The mean of the weights, with rank 0's moments and pools. Every rank has to ask for it."""
        at_0, *others = ranks.gathered(super().state_dict())
        models = [at_0["model"], *(other["model"] for other in others)]
        return at_0 | {"model": {name: torch.stack([one[name] for one in models]).mean(0) for name in models[0]}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.outer is not None:
            with torch.no_grad():
                for before, weight in zip(self.anchor, self.model.parameters(), strict=True):
                    before.copy_(weight)
