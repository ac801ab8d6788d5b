"""What an answer leaves behind: its inputs, its networks and the settings of the process have to be as before.

A check calls an answer in the student's own kernel, where later cells and the checks of other exercises run. An answer
that leaves a discriminator frozen, or Python's garbage collector off, would spoil these.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

AUTOCAST = ("cpu", "cuda")  # devices


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _set_autocast(device: str, before: tuple[bool, torch.dtype]) -> None:
    torch.set_autocast_enabled(device, before[0])
    torch.set_autocast_dtype(device, before[1])


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {  # how each is read and set
    "PyTorch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "PyTorch's default device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),  # None is faster
    ),
    "PyTorch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast": (lambda: [*map(_autocast, AUTOCAST)], lambda before: [*map(_set_autocast, AUTOCAST, before)]),
    "PyTorch's precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "what NumPy does on errors": (np.geterr, lambda before: np.seterr(**before)),
    "Python's garbage collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "the working directory": (os.getcwd, os.chdir),
}
RANDOM: list[tuple[Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]] = [  # how each is read, set, seeded
    (random.getstate, random.setstate, random.seed),
    (np.random.get_state, np.random.set_state, np.random.seed),
    (torch.get_rng_state, torch.set_rng_state, torch.manual_seed),
]
LEFT = "your answer leaves {} changed, for all later code: set it back before it ends."
FROZEN = "a network is left with another requires_grad, so that it learns otherwise from now on: set it back."
MODE = "a network is left in another mode: call .train() or .eval() again before the end."
FREED = "the memory of a tensor is freed, and other code still needs it: only read its size."
CHANGED = "an input was changed in place, and other code still needs it: make a new value, a - b instead of a -= b."


@contextmanager
def kept(seed: int, *given: Any) -> Iterator[list[str]]:
    """Says what the block leaves changed, and sets the process's settings and random numbers back after it.

    Args:
        seed: of all random numbers inside.
        given: inputs, which may hold tensors and tables. Of networks among them the flags are looked at, and no weight.

    Yields:
        A list, which holds the messages after the block.
    """
    settings = {name: read() for name, (read, _) in SETTINGS.items()}
    inputs = {message: look(given) for message, look in LOOKS.items()}
    states = [read() for read, _, _ in RANDOM]
    left: list[str] = []
    try:
        for _, _, seeds in RANDOM:
            seeds(seed)
        yield left
    finally:
        for (_, write, _), state in zip(RANDOM, states, strict=True):
            write(state)
        for name, (read, write) in SETTINGS.items():
            if read() != settings[name]:
                left.append(LEFT.format(name))
                write(settings[name])
    for message, look in LOOKS.items():
        if not left and look(given) != inputs[message]:  # what is freed cannot be read: no further look
            left.append(message)


def _networks(given: Any) -> list[nn.Module]:
    return [one for one in tree_leaves(given) if isinstance(one, nn.Module)]


def _contents(value: Any) -> Any:
    if isinstance(value, Tensor):
        copy = value.detach().clone(memory_format=torch.contiguous_format)  # nobody can resize what NumPy has seen
        return value.dtype, value.shape, hash(copy.reshape(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, hash(value.tobytes())
    if type(value).__name__ == "TraceAnalysis":  # HTA's, which takes seconds to import
        return {rank: _contents(table) for rank, table in value.t.traces.items()}
    return value.to_dict("tight") if isinstance(value, DataFrame) else value


LOOKS: dict[str, Callable[[Any], Any]] = {  # by message what of inputs has to stay as it is
    FROZEN: lambda given: [weight.requires_grad for one in _networks(given) for weight in one.parameters()],
    MODE: lambda given: [layer.training for one in _networks(given) for layer in one.modules()],
    FREED: lambda given: [one.untyped_storage().size() for one in tree_leaves(given) if isinstance(one, Tensor)],
    CHANGED: lambda given: repr(tree_map(_contents, given)),  # as text, since nan is not equal to itself
}
