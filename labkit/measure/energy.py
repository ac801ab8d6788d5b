"""The energy that a GPU uses for a step, by the counter of NVML, NVIDIA's library of management functions."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from labkit.errors import LabkitError
from labkit.measure.timing import synchronise

SECONDS = 1.0  # the counter advances in steps of about a tenth of a second


def energy_counter(device: torch.device) -> Callable[[], float]:
    """A function that gives the joules this GPU has used since its driver was loaded, by whichever program.

    Source: NVML's nvmlDeviceGetTotalEnergyConsumption, for GPUs since the V100 and T4.

    Raises:
        LabkitError: the device is no GPU, its driver does not count, or the package nvidia-ml-py is missing.
    """
    if device.type != "cuda":
        raise LabkitError("does not suit this device: only GPUs count the energy they use")
    try:
        import pynvml
    except ImportError as error:
        raise LabkitError("the package nvidia-ml-py is missing, which reads the GPU's counter of energy") from error

    def read() -> float:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3

    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        read()
    except pynvml.NVMLError as error:
        raise LabkitError(f"does not suit this device: NVML does not say how much energy it uses ({error})") from error
    return read


def joules(run: Callable[[], object], counter: Callable[[], float], seconds: float = SECONDS) -> float:
    """Joules of one run: the mean over as many as fit into `seconds`."""
    synchronise()
    before, started, runs = counter(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        run()
        synchronise()
        runs += 1
    return (counter() - before) / runs
