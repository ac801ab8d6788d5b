"""Stand-ins for a GPU, for machines that have none.

`FakeGPU` works asynchronously, in SIMULATED time, so that stopwatches go wrong as they do on a GPU. `Tape` records the
part of a step that a CUDA graph records, and `replay_side_by_side` compares its replays with normal calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A host that asks for a tensor's value, or for how many of its elements are true, has to wait for the device.
WAITING = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select"}

INPUTS = tuple(torch.tensor(values) for values in ([1.0, 2.0, 3.0], [-1.0, 0.5, 0.2], [2.0, 1.0, 4.0]))


class FakeGPU:
    """Takes work and returns at once, as a GPU does. Time passes on its own clock, in SIMULATED seconds.

    A launch costs the host `launch` seconds. Work is done in the order of its launches, and only `synchronise` waits
    for it.
    """

    def __init__(self, launch: float = 1e-5):
        self.launch_cost = launch
        self.now = 0.0  # on the host
        self.free_at = 0.0  # when the device has done all it was given

    def launch(self, seconds: float) -> None:
        """Hands over work of `seconds`. The host continues after the launch."""
        self.now += self.launch_cost
        self.free_at = max(self.free_at, self.now) + seconds

    def synchronise(self) -> None:
        """Lets the host wait until the device has done everything."""
        self.now = max(self.now, self.free_at)

    def clock(self) -> float:
        """The host's time, instead of `time.perf_counter`."""
        return self.now


class Tape(TorchDispatchMode):
    """Inside `with`, keeps every tensor operation with the memory it reads and writes. `replay` does them again.

    Nothing else is kept: no Python, so no branches and no loops, and numbers stay as they were in the recording.
    Random numbers of torch's generator are drawn again. A CUDA graph does the same, with one difference: this tape also
    does the operations while it records them. Source: PyTorch's notes "CUDA semantics", section "CUDA Graphs".

    Raises:
        RuntimeError: while recording, if the host asks for a tensor's value, as with .item() or an `if`. In `replay`,
            if a tensor has moved in memory: a graph would continue reading the old place.
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


def fresh_memory(a: Tensor) -> SimpleNamespace:
    """What a step of notebook 05 keeps between calls with inputs such as `a`, before the first."""
    return SimpleNamespace(rate=1.0, rate_tensor=torch.tensor(1.0), total=torch.zeros_like(a))


def replay_side_by_side(
    step: Callable[[Tensor, SimpleNamespace], Tensor], inputs: Sequence[Tensor] = INPUTS
) -> tuple[list[Tensor], list[Tensor] | str]:
    """The results of ``step(a, memory)`` for inputs of one shape: called each time, and recorded once and replayed.

    Both begin with the same `memory`, which holds a Python number `rate`, a 0-d tensor `rate_tensor`, and a tensor
    `total` of the input's shape. If the step cannot be recorded, the error's text replaces the second list.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        memory = fresh_memory(inputs[0])
        called = [step(a.clone(), memory).clone() for a in inputs]
        torch.manual_seed(0)
        memory, static = fresh_memory(inputs[0]), inputs[0].clone()
        try:
            with Tape() as tape:
                result = step(static, memory)
        except RuntimeError as error:
            return called, str(error)
        replayed = [result.clone()]
        for a in inputs[1:]:
            static.copy_(a)
            tape.replay()
            replayed.append(result.clone())
    return called, replayed
