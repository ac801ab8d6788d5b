"""What an answer leaves behind: its inputs, its networks and the settings of the process have to be as before.

A check calls an answer in the student's own kernel, where later cells and the checks of other exercises run. An answer
that leaves a discriminator frozen, or Python's garbage collector off, would spoil these.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from labcourse.observe.mistake import MistakeFound

SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {  # what each is called: how it is read, and set
    "PyTorch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "PyTorch's default device": (torch.get_default_device, torch.set_default_device),
    "PyTorch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    "Python's garbage collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "the working directory": (os.getcwd, os.chdir),
}


@contextmanager
def settings_kept() -> Iterator[None]:
    """Sets the process's settings back after the block.

    Raises:
        MistakeFound: the block ended without an error, and left one of them changed.
    """
    before = {name: read() for name, (read, _) in SETTINGS.items()}
    changed = []
    try:
        yield
    finally:
        for name, (read, write) in SETTINGS.items():
            if read() != before[name]:
                changed.append(name)
                write(before[name])
    if changed:
        raise MistakeFound(f"your answer leaves {changed[0]} changed, for all later code: set it back before it ends.")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside the block the random numbers of Python, NumPy and PyTorch follow from `seed`; their states come back."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def networks_kept(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function like `answer` that raises `MistakeFound` if a call leaves networks or memory changed.

    It looks at the networks and tensors among the call's arguments, and in lists and dicts there; of a training step at
    its model.
    """

    @wraps(answer)
    def checked(*given: Any, **named: Any) -> Any:
        leaves = tree_leaves((given, named))
        networks = [one for leaf in leaves if isinstance(one := getattr(leaf, "model", leaf), nn.Module)]
        before = [_flags(one) for one in networks]
        memory = [(one, one.untyped_storage().size()) for one in leaves if isinstance(one, Tensor)]
        got = answer(*given, **named)
        for network, (learning, training) in zip(networks, before, strict=True):
            now = _flags(network)
            if now[0] != learning:
                raise MistakeFound("a network is left with another requires_grad: set it back, or it never learns again.")
            if now[1] != training:
                raise MistakeFound("a network is left in another mode: call .train() or .eval() again before the end.")
        if any(one.untyped_storage().size() != size for one, size in memory):
            raise MistakeFound("the memory of a tensor is freed, and other code still needs it: only read its size.")
        return got

    return checked


def _flags(network: nn.Module) -> tuple[list[bool], list[bool]]:
    return [one.requires_grad for one in network.parameters()], [layer.training for layer in network.modules()]


def contents(values: tuple[Any, ...]) -> bytes:
    """The values as bytes, which differ after one was changed in place."""
    return pickle.dumps(tree_map(_numbers, values))


def _numbers(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.dtype, value.shape, value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
