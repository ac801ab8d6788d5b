"""Running a network on pictures without training it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def run_network(network: nn.Module, pictures: Tensor, batch_size: int = 16) -> Tensor:
    """Translated pictures, (N, 3, H, W) in [-1, 1] in and out, on the CPU and in ``float32``.

    Works through them `batch_size` at a time, in evaluation mode, and leaves the network in the mode it was in.
    """
    weight = next(network.parameters())
    was_training = network.training
    network.eval()
    try:
        parts = [network(part.to(weight)).float().cpu() for part in pictures.split(batch_size)]
    finally:
        network.train(was_training)
    return torch.cat(parts)
