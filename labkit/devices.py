"""Which device to compute on."""

from __future__ import annotations

import torch

from labkit.errors import LabkitError

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
LESS_MEMORY = (
    "Use smaller batches or pictures; or the speed-ups 'bf16' or 'recompute', or accumulate (the same update in "
    "parts), which need less memory."
)


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """The device called `name`: "cpu", "cuda", "cuda:1", or "auto" for the GPU if there is one.

    Raises:
        LabkitError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LabkitError(f"device={name!r} is unknown. Choose 'auto', 'cpu' or 'cuda'.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise LabkitError(
            f"device={str(name)!r}: PyTorch {torch.__version__} finds {torch.cuda.device_count()} CUDA GPUs here. "
            "Use device='cpu', or install a driver and a CUDA build of PyTorch."
        )
    return device
