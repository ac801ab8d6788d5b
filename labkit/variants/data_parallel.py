"""data_parallel: every rank computes a part of the batch, and all learn from the mean of their gradients."""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labkit import ranks
from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.variants import SpeedUp


class DataParallel(SpeedUp):
    """Trains the same networks on every rank, each with its own part of the batch.

    Differs from the baseline in `losses`, which runs inside a `DistributedDataParallel` (DDP) for each player. DDP
    starts to average a gradient over the ranks while the backward pass still computes others: more than half of a
    player's numbers are ready before the last tenth of it, with "nhwc", too. One for each player and not for each
    network: within a step a generator runs three times, but its player once, and it is after a forward pass that DDP
    expects the backward pass. `learn` averages once for all parts of an accumulated batch, and `run` averages the
    losses. Each rank's pool holds its share of the pictures, and draws from random numbers of its own. A checkpoint
    holds the whole. Source: Li et al. 2020, "PyTorch Distributed".

    Improves: pictures a second, with every further device. Does not help where a step is short, as with small pictures,
    fast devices or a slow network: the gradients of all weights go through the network in every step. Nor with a
    batch of 1, as in CycleGAN's paper: there is nothing to share, so the batch has to grow.
    """

    name = "data_parallel"
    changes = "each rank computes a part of the batch; gradients are averaged"
    improves = "pictures a second"
    needs = "several ranks (torchrun); not batch norm"
    batch_norm_would = "take its mean over a rank's part instead of the batch"
    excludes = {
        "graph": "the exchange between the ranks would have to be part of the recorded graph",
        "streams": "gradients would be exchanged from two streams, which is untested on several GPUs",
    }

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        return None if ranks.count() > 1 else "there is one process, see torchrun"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        optimizers = super().build(betas)  # first: it may lay out the weights in another way
        self.ddp: dict[str, DistributedDataParallel] = {}
        self.ranks = self.shares = ranks.count()
        if self.ranks > 1:
            shared = partial(DistributedDataParallel, gradient_as_bucket_view=True)  # gradients are not copied there
            self.ddp = {player: shared(_Player(self, player)) for player in self.players}
            for pool in self.model.pools.values():
                if pool.size == self.model.settings["pool_size"]:  # no earlier step has taken its share
                    share = share_of(pool.state_dict(), ranks.number(), self.ranks)
                    pool.size = len(range(ranks.number(), pool.size, self.ranks))
                    pool.load_state_dict(share, next(self.model.parameters()).device)
        return optimizers

    def run(self, batch: Batch) -> dict[str, Tensor]:
        losses = super().run(batch)
        values = torch.stack(list(losses.values()))
        if self.ddp:
            dist.all_reduce(values)
        return dict(zip(losses, (values / self.ranks).unbind(), strict=True))

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        parts = getattr(self, "batches", [batch])  # of an accumulated batch
        with nullcontext() if batch is parts[-1] or not self.ddp else self.ddp[player].no_sync():
            return super().learn(player, batch)

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:
        return self.ddp[player](batch) if self.ddp else super().losses(player, batch)

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole run, the same on every rank. Every rank has to ask for it."""
        state = super().state_dict()
        if self.ddp:
            everyone = ranks.gathered(state["pools"])
            size = self.model.settings["pool_size"]
            state["pools"] = {name: merge_shares([pools[name] for pools in everyone], size) for name in state["pools"]}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.ddp:
            pools = state["pools"].items()
            state = {**state, "pools": {name: share_of(pool, ranks.number(), self.ranks) for name, pool in pools}}
        super().load_state_dict(state)


class _Player(nn.Module):
    """A player's networks, with the computation of its losses as their forward pass."""

    def __init__(self, step: DataParallel, player: str) -> None:
        super().__init__()
        weights = set(step.players[player])
        networks = (network for network in step.model.children() if weights & set(network.parameters()))
        self.networks = nn.ModuleList(networks)
        self.compute = partial(super(DataParallel, step).losses, player)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.compute(batch)


# Several ranks share a pool: slot k of the whole one is slot k // n of rank k % n, so that they fill it in its order.


def merge_shares(shares: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """The state of a pool of `size` from the states of its shares, one of each rank. `share_of` takes it apart."""
    kept = [share["pictures"] for share in shares]
    pictures = None if kept[0] is None else kept[0].new_zeros(size, *kept[0].shape[1:])
    for rank, of_rank in enumerate(kept):
        if pictures is not None and of_rank is not None:
            pictures[rank :: len(shares)] = of_rank
    filled = sum(share["filled"] for share in shares)
    return {**shares[0], "filled": filled, "pictures": pictures, "ranks": [share["random"] for share in shares]}


def share_of(state: dict[str, Any], rank: int, n: int) -> dict[str, Any]:
    """The share of a whole pool's state that `rank` of `n` has.

    If as many ranks saved the state, the random numbers continue where they were. Otherwise each rank gets new ones.
    """
    known = state.get("ranks", [])
    return {
        **state,
        "filled": len(range(rank, state["filled"], n)),
        "random": known[rank] if len(known) == n else random.Random(f"{state['random']} {rank} of {n}").getstate(),
        "pictures": None if state["pictures"] is None else state["pictures"][rank::n],
    }
