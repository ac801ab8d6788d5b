"""The place of this process among those that share a network."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map

from labkit.errors import LabkitError


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This process's rank in `group`, and the number of ranks there. None stands for all ranks there are.

    Raises:
        LabkitError: there is no process group, or this process does not belong to it.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise LabkitError(
            "There is no process group: start the processes with torchrun, and call this inside labkit.ranks.joined()."
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise LabkitError(f"group={group}: rank {dist.get_rank()} does not belong to it. Call this on its ranks only.")
    return rank, dist.get_world_size(group)


def on_host(state: Any) -> Any:
    """The same dicts, with their tensors in the host's memory, to be sent to other ranks."""
    return tree_map(lambda value: value.cpu() if isinstance(value, Tensor) else value, state)
