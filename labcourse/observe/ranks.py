"""What is seen of an answer that works on several ranks, all in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcourse.observe.mistake import MistakeFound, hint
from labcourse.one_process import of_each, of_rank, several_ranks


def averaged(
    answer: Callable[[Iterable[Tensor]], None], gradients: list[list[Tensor]]
) -> list[tuple[bool, list[Tensor]]]:
    """Whether each weight has changed after ``answer(weights)``, and its gradient on each rank, or None.

    Args:
        gradients: those of each weight, of all ranks. The weights are 1.
    """
    n = len(gradients[0])
    with several_ranks(n):
        weights = []
        for of_ranks in gradients:
            weights.append(of_each([torch.ones(one.shape) for one in of_ranks]).requires_grad_())
            weights[-1].grad = of_each([one.clone() for one in of_ranks])
        with hint("On tensors of several ranks use dist.all_reduce(weight.grad)."):
            answer(iter(weights))  # as model.parameters() is
    found = []
    for weight in weights:
        moved = any(bool((of_rank(weight.detach(), rank) != 1).any()) for rank in range(n))
        found.append((moved, [of_rank(cast(Tensor, weight.grad), rank) for rank in range(n)]))
    return found


def sent_in_buckets(
    answer: Callable[[Iterable[Tensor], int], Callable[[], None]],
    weights: list[tuple[Tensor, Tensor]],
    batches: list[Tensor],
    ranks: int,
    bucket_bytes: int,
) -> list[dict[str, Any]]:
    """What ``answer(weights, bucket_bytes)`` sends in some steps of a network of linear layers, and the gradients.

    Args:
        weights: weight and bias of each layer.
        batches: of all ranks together, one for each step.

    Returns:
        For each step what happened during the backward pass, and in `finish`: pairs of "gradient" (it is complete),
        "sent" (a bucket) or "wait", and bytes. And the weights' gradients on the first rank.
    """
    layers = []
    for weight, bias in weights:
        layers.append(nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype))
        layers[-1].load_state_dict({"weight": weight, "bias": bias})
    network = nn.Sequential(*layers)
    noted: list[tuple[str, int]] = []

    class Noted:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor, self.sum = tensor, tensor.clone()
            tensor.fill_(math.nan)  # until somebody waits

        def wait(self) -> None:
            noted.append(("wait", 0))
            original(self.sum)
            self.tensor.copy_(self.sum)

    def all_reduce(tensor: Tensor, **options: Any) -> Any:
        noted.append(("sent", tensor.nbytes))
        return Noted(tensor) if options.get("async_op") else original(tensor, **options)

    original = dist.all_reduce
    finish = answer(list(network.parameters()), bucket_bytes)
    if not callable(finish):
        raise MistakeFound("in_buckets returns the function `finish`, without calling it.")
    for weight in network.parameters():  # after the answer's own hooks, which so come first
        weight.register_post_accumulate_grad_hook(lambda weight: noted.append(("gradient", weight.nbytes)))
    steps = []
    for batch in batches:
        noted.clear()
        network.zero_grad()
        with several_ranks(ranks), patch.object(dist, "all_reduce", all_reduce):
            network(of_each(batch.chunk(ranks))).square().mean().backward()
            of_backward = len(noted)
            finish()
        gradients = [of_rank(cast(Tensor, weight.grad), 0) for weight in network.parameters()]
        steps.append({"backward": noted[:of_backward], "finish": noted[of_backward:], "gradients": gradients})
    return steps
