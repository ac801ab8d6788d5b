"""Autocast for tensors on the meta device, as PyTorch has it on CUDA.

PyTorch casts where it chooses an operator's kernel: above autograd, and below the functions that call others, so that
`x @ w`, einsum, attention and recurrent layers are cast like a product. Its own kernels that cast know CUDA's tensors.
Here are the same for the meta device, under a dispatch key that nothing else uses. Which operator is cast to which type
is read from PyTorch's own header; `torch.autocast` itself says whether, and to which 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

NAME = "AutocastIPU"  # of a device that nobody here has
KEY = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, NAME))
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
MACRO = re.compile(r"#define AT_FORALL_(LOWER_PRECISION_FP|FP32|FP32_SET_OPT_DTYPE|PROMOTE)\(_\)((?: *\\\n[^\\\n]*)+)")
RECURRENT = [f"{layer}.{form}" for layer in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data")]
# What the header does not list: recurrent layers, which are cuDNN's on CUDA and cast there; `norm`, which gets a result
# in float32; and a loss that PyTorch refuses.
OTHERS = dict.fromkeys(RECURRENT, "LOWER_PRECISION_FP") | dict.fromkeys(("norm.Scalar", "norm.ScalarOpt_dim"), "FP32")
OTHERS["binary_cross_entropy"] = "BANNED"
COPIES: dict[int, tuple[Tensor, Tensor]] = {}  # by a weight's id, the weight and its copy in 16 bits


@cache
def rules() -> dict[str, str]:
    """By operator, such as "softmax.int", the rule by which autocast casts on CUDA, as PyTorch's header calls it."""
    found = {
        ".".join(filter(None, entry)): rule
        for rule, body in MACRO.findall(HEADER.read_text(encoding="utf-8"))
        for entry in re.findall(r"_\((\w+)(?:, (\w+))?\)", body)
    }
    return found | OTHERS


@contextmanager
def autocast_on_meta() -> Iterator[None]:
    """Inside, `torch.autocast` for CUDA acts on tensors on the meta device."""
    _registered()
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included | KEY, excluded - KEY):
        with mock.patch.object(torch, "clear_autocast_cache", COPIES.clear):
            yield


@cache
def _registered() -> tuple[torch.library.Library, ...]:
    """Registers the kernels that cast. An operator without such a kernel goes past the key."""
    others, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, NAME)
    for name, rule in rules().items():
        packet, _, overload = name.partition(".")
        aten.impl(name, partial(_apply, rule, getattr(getattr(torch.ops.aten, packet), overload or "default")), NAME)
    return others, aten


def _apply(rule: str, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the operator with its arguments cast by the rule, and nothing below it is cast."""
    with torch._C._ExcludeDispatchKeyGuard(KEY):
        if not torch.is_autocast_enabled("cuda"):
            return operator(*args, **kwargs)
        if rule == "BANNED":
            return operator._op_dk(torch._C.DispatchKey.AutocastCUDA, *args, **kwargs)  # PyTorch's own error
        given = tree_leaves((args, kwargs))
        if rule == "FP32_SET_OPT_DTYPE":
            if _is_cast(args[0]) and not any(isinstance(one, torch.dtype) for one in given):
                kwargs["dtype"] = torch.float32
            return operator(*args, **kwargs)
        types = {one.dtype for one in given if isinstance(one, Tensor) and _is_cast(one)}
        wide = rule == "FP32" or (rule == "PROMOTE" and torch.float32 in types)
        to = torch.float32 if wide else torch.get_autocast_dtype("cuda")
        args, kwargs = tree_map_only(Tensor, lambda tensor: _cast(tensor, to), (args, kwargs))
        return operator(*args, **kwargs)


def _is_cast(tensor: Tensor) -> bool:
    return tensor.is_meta and tensor.is_floating_point() and tensor.dtype != torch.float64


def _cast(tensor: Tensor, to: torch.dtype) -> Tensor:
    """The tensor in this type. Of a weight there is one copy in 16 bits, until the outermost autocast ends."""
    if not _is_cast(tensor) or tensor.dtype == to:
        return tensor
    is_weight = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
    if not is_weight or not torch.is_autocast_cache_enabled():
        return tensor.to(to)
    if id(tensor) not in COPIES:
        with torch.enable_grad():
            COPIES[id(tensor)] = tensor, tensor.to(to)
    return COPIES[id(tensor)][1]
