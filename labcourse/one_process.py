"""Several ranks in one process, to learn with: a tensor then has a value for each rank, and collectives work on these.

PyTorch's LocalTensorMode makes it so. Nothing is faster, and DistributedDataParallel does not work in it: real ranks
are processes that torchrun starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from labkit.errors import LabkitError


@contextmanager
def several_ranks(n: int) -> Iterator[None]:
    """Inside, this process plays `n` ranks: `torch.distributed`'s collectives work on tensors from `of_each`.

    Raises:
        LabkitError: this process belongs to a process group already.
    """
    if dist.is_initialized():
        raise LabkitError("This process is a rank already: call several_ranks outside of torchrun, and not twice.")
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=n, store=FakeStore())
    try:
        with LocalTensorMode(n):
            yield
    finally:
        dist.destroy_process_group()


def of_each(values: Sequence[Tensor]) -> Tensor:
    """A tensor with another value on each rank, all of the same shape. Inside `several_ranks` only."""
    from torch.distributed._local_tensor import LocalTensor

    return LocalTensor({rank: of_rank(value, rank) for rank, value in enumerate(values)})


def of_rank(tensor: Tensor, rank: int) -> Tensor:
    """The value that a tensor has on this rank."""
    return getattr(tensor, "_local_tensors", {rank: tensor})[rank]


def average_gradients(weights: Iterable[Tensor]) -> None:
    """Replaces the gradient of each weight by its mean over the ranks: data parallel training by hand.

    Source: Li et al. 2020, "PyTorch Distributed", section 3.1.
    """
    for weight in weights:
        if weight.grad is not None:
            dist.all_reduce(weight.grad)
            weight.grad.div_(dist.get_world_size())


# The faults of data-parallel programs that notebook 10 lets the student find.
FAULTS = {
    1: "gradients are summed over the ranks, and not averaged",
    2: "gradients of a scaled loss are divided by the scale twice",
    3: "all ranks take the same pictures",
    4: "the ranks begin with different weights",
}
LOSS_SCALE = 1024


def train_with_fault(fault: int, a: Sequence[Tensor], b: Sequence[Tensor], optimizer: str) -> dict[str, float]:
    """Fits a tiny network on several ranks in this process, and returns how it went: the programs of notebook 10.

    The network turns colours into colours, with 3 x 3 weights.

    Args:
        fault: a key of `FAULTS`, or 0 for none.
        a, b: of each rank the pictures to start from and those to reach, (N, 3, H, W).
        optimizer: "SGD" or "Adam".
    """
    torch.manual_seed(0)
    with several_ranks(len(a)):
        weight = of_each([0.3 * torch.randn(3, 3, 1, 1) for _ in a])  # each process draws its own
        start = of_rank(weight, 0).clone()
        if fault != 4:
            dist.broadcast(weight, 0)
        mine, theirs = (of_each([pictures[0]] * len(a) if fault == 3 else pictures) for pictures in (a, b))
        weights = [weight.requires_grad_()]
        steps = torch.optim.SGD(weights, lr=0.1) if optimizer == "SGD" else torch.optim.Adam(weights, lr=0.02)
        for _ in range(5):
            (LOSS_SCALE * F.mse_loss(F.conv2d(mine, weight), theirs)).backward()
            average_gradients(weights)
            assert weight.grad is not None
            if fault == 1:
                weight.grad.mul_(len(a))
            weight.grad.div_(LOSS_SCALE**2 if fault == 2 else LOSS_SCALE)
            steps.step()
            steps.zero_grad()
    ends = [of_rank(weight, rank).detach() for rank in range(len(a))]
    seen = {picture.numpy().tobytes() for rank in range(len(a)) for picture in of_rank(mine, rank)}
    return {
        "rank 0's weights moved by": (ends[0] - start).norm().item(),
        "ranks differ by": (ends[0] - ends[1]).norm().item(),
        "different pictures in a step": len(seen),
    }
