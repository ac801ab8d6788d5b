"""The memory of one training step, counted without a GPU."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.simulate.operators import meta_step


def step_memory(
    model: nn.Module, *speedups: str | type, batch_size: int = 1, size: int = 256, accumulate: int | None = None
) -> int:
    """Bytes that the tensors of a training step hold at most: COUNTED on the meta device, not measured.

    Weights, gradients, Adam's moments, pools, the batch and everything between forward and backward pass are in it.
    What a GPU needs beyond: CUDA itself, workspaces of cuDNN, and what its allocator rounds up and leaves unused. So a
    step whose count is close to the GPU's memory does not fit.

    Args:
        model: a `labkit.CycleGAN` or another model with players. It is not touched.
        speedups: as for `labkit.make_step`; not "graph", "compile" or "channels_last".
        batch_size, size: pictures of either domain, and the pixels of their sides.
        accumulate: in how many parts, as for `labkit.make_step`.

    Raises:
        LabkitError: a speed-up cannot act on the meta device or does not suit the model, or the batch does not fit it.
    """
    with LiveBytes() as live:
        shape = dict(batch_size=batch_size, size=size, accumulate=accumulate)
        with meta_step(model, *speedups, **shape) as (step, batch, _):
            step(*batch)  # Adam makes its moments, and the pools their buffers
            step(*batch)
    return live.peak


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors on the meta device that are made inside it, while they live.

    `now` are those of the living, `peak` the most there were at once. Views share the memory of what they look at.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: weakref.WeakSet[UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, storage.nbytes())

    def _forget(self, size: int) -> None:
        self.now -= size
