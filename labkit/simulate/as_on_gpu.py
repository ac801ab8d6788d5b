"""What the meta device does unlike a GPU: it forgets how results are laid out, and takes long for some gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class AsOnGPU(TorchDispatchMode):
    """Inside `with`, results on the meta device lie in memory as on a GPU, and gradients of batch norm come at once.

    A convolution whose picture or weight has the channels last writes all its results so, forward and backward; the
    meta device does in some versions of PyTorch only. And for batch norm's gradients PyTorch would run dozens of
    operators in Python to find their shapes, which takes as long as the rest of the step.
    """

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        aten = torch.ops.aten
        if operator is aten.native_batch_norm_backward.default and args[0].is_meta:
            _, picture, weight, *_, wanted = args
            of = (picture, weight, weight)  # the bias is as large as the weight
            return tuple(torch.empty_like(like) if want else None for like, want in zip(of, wanted, strict=True))
        result = operator(*args, **(kwargs or {}))
        if operator in (aten.convolution.default, aten.convolution_backward.default) and args[0].is_meta:
            if any(has_channels_last(one) for one in args[:3] if one is not None):
                for made in [result] if isinstance(result, Tensor) else result:
                    if made is not None and made.dim() == 4:
                        _, channels, height, width = made.shape
                        made.as_strided_(made.shape, (channels * height * width, 1, width * channels, channels))
        return result


def has_channels_last(tensor: Tensor) -> bool:
    """Whether all channels of a pixel lie side by side in memory, and not all pixels of a channel."""
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
