"""A tape of tensor operations: what a CUDA graph keeps of a step, for machines that have none."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A host that asks for a tensor's value, or for how many of its elements are true, has to wait for the device.
WAITING = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select"}


class Tape(TorchDispatchMode):
    """Inside `with`, keeps every tensor operation with the memory it reads and writes; `replay` does them again.

    Nothing else is kept: no Python, so no branch, no loop, and no number but as it was when the tape was recorded.
    Random numbers of torch's generator are drawn anew. A CUDA graph does the same, but for one thing: the operations
    are done while this tape is recorded, too. Source: PyTorch's notes "CUDA semantics", section "CUDA Graphs".

    Raises:
        RuntimeError: while recording, if the host asks for a tensor's value, as with .item() or an `if`; or, in
            `replay`, if a tensor has moved in memory: a graph would go on reading the old place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = operator.name().partition(".")[0]
        if name in WAITING:
            raise RuntimeError("operation not permitted when stream is capturing: the host asks for a tensor's value")
        result = operator(*args, **(kwargs or {}))
        if "empty" in name:
            result.zero_()  # memory without values: nothing to do again
        else:
            self.calls.append((operator, args, kwargs or {}, result, _addresses((args, kwargs))))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """Does all operations again, in their order, from the same memory into the same memory."""
        for operator, args, kwargs, result, there in self.calls:
            if _addresses((args, kwargs)) != there:
                raise RuntimeError(f"{operator.name()}: a graph would still read where a tensor was, and it has moved.")
            for old, new in zip(tree_leaves(result), tree_leaves(operator(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _addresses(tree: Any) -> list[int]:
    return [leaf.data_ptr() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
