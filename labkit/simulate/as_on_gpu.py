"""What the meta device does unlike a GPU: it forgets how results are laid out, and takes long for some shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.simulate.autocast import autocast_on_meta
from labkit.simulate.cuda_stubs import ON_META, Schedule, stubs_for_cuda

aten = torch.ops.aten
POINTWISE = {aten.add.Tensor, aten.leaky_relu_backward.default, aten.threshold_backward.default}


class AsOnGPU(TorchDispatchMode):
    """Inside `with`, results on the meta device lie in memory as on a GPU, and those that take it long come at once.

    A convolution whose picture or weight has the channels last writes all its results so, forward and backward; the
    meta device does in some versions of PyTorch only. And for the shapes of some results PyTorch would run dozens of
    operators in Python, which takes three times as long as the rest of the step.
    """

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.is_meta:
            if operator is aten.native_batch_norm_backward.default:
                _, picture, weight, *_, wanted = args
                of = (picture, weight, weight)  # the bias is as large as the weight
                return tuple(torch.empty_like(like) if want else None for like, want in zip(of, wanted, strict=True))
            if operator is aten.native_batch_norm.default and args[5]:
                numbers = torch.promote_types(first.dtype, torch.float32)
                mean, deviation = (first.new_empty(first.shape[1], dtype=numbers) for _ in range(2))
                return torch.empty_like(first), mean, deviation
            if operator in POINTWISE and all_alike([one for one in args if isinstance(one, Tensor)]):
                return torch.empty_like(first)
        result = operator(*args, **(kwargs or {}))
        if operator in (aten.convolution.default, aten.convolution_backward.default) and args[0].is_meta:
            if any(has_channels_last(one) for one in args[:3] if one is not None):
                for made in [result] if isinstance(result, Tensor) else result:
                    if made is not None and made.dim() == 4:
                        _, channels, height, width = made.shape
                        made.as_strided_(made.shape, (channels * height * width, 1, width * channels, channels))
        return result


@contextmanager
def as_on_gpu() -> Iterator[Schedule]:
    """Inside, a program runs on the meta device as on a GPU. The `Schedule` knows its streams."""
    schedule, allow = Schedule(), torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp
    with ExitStack() as stack:
        stack.callback(allow, torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed())
        allow(True)  # attention stays in 16 bits, as in fused kernels
        for one in (stubs_for_cuda(schedule, ON_META), autocast_on_meta(), AsOnGPU()):
            stack.enter_context(one)
        yield schedule


def all_alike(tensors: list[Tensor]) -> bool:
    """Whether these are at least two, of the same type, on the same device, and lie in memory in the same way."""
    forms = {(one.dtype, one.device, one.shape, one.stride()) for one in tensors}
    return len(tensors) > 1 and len(forms) == 1


def has_channels_last(tensor: Tensor) -> bool:
    """Whether all channels of a pixel lie side by side in memory, and not all pixels of a channel."""
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
