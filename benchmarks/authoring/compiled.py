"""The kernels of `nhwc`, compiled ahead of time for a GPU that need not be here, with the registers they take.

    python -m benchmarks.authoring.compiled          # for an A100 and an H100: registers, spills, shared memory

A survey has processes of its own compile all that its steps will launch, into Triton's cache, while it looks whether
the kernels are right. They learn what is launched from steps on the meta device, and make no context on the GPU.
"""

import os
import re
import subprocess
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.authoring.apart import start
from benchmarks.authoring.kernels import norm_calls
from benchmarks.authoring.plan import NEW, RESNET, Item
from labkit.models import MODELS
from labkit.simulate import step_operators
from labkit.variants import nhwc_ends, nhwc_norm

LAUNCHING = ("in_turn", "trace", "replay", "updates", "sweep")  # kinds of items whose kernels are compiled ahead
MOST_PROCESSES, OTHERS = 12, 3  # cores that are left to the survey itself
A100, H100 = 80, 90  # compute capability, times 10

Launch = tuple[Any, list, dict[str, Any]]  # kernel, arguments with types in place of tensors, constants


def launches_of(items: list[Item]) -> list[Launch]:
    """What the items launch of `nhwc`, each kernel once in each form in which Triton compiles it."""
    found: dict[str, Launch] = {}

    def note(kernel: Any, grid: tuple, on: Tensor, *arguments: Any, **constants: Any) -> None:
        plain = [one.dtype if isinstance(one, Tensor) else one for one in arguments]
        forms = [(one == 1, one % 16 == 0) if isinstance(one, int) else one for one in plain]
        found.setdefault(f"{kernel.__name__} {forms} {sorted(constants.items())}", (kernel, plain, constants))

    nhwc_norm.run = nhwc_ends.run = note
    steps = {(item.called, item.size, item.batch_size): item for item in items if item.kind != "sweep"}
    for item in steps.values():
        stack = [name for name in item.speedups if name != "graph"]
        step_operators(MODELS[item.model](**item.settings), *stack, batch_size=item.batch_size, size=item.size)
    for item in items:
        for _, call, _ in norm_calls(item, torch.device("meta")) if item.kind == "sweep" else ():
            call()  # last, since other tiles stay
    return list(found.values())


def compile_ahead(items: Iterable[Item], device: torch.device) -> list[BaseProcess]:
    """Processes that compile what the items launch: on a GPU all of it, in a rehearsal one process three kernels."""
    items = [item for item in items if item.kind in LAUNCHING and "nhwc" in item.speedups]
    capability, n, most = H100, 1, 3
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        capability, n, most = 10 * major + minor, max(2, min(MOST_PROCESSES, (os.cpu_count() or 1) - OTHERS)), 1000
    return [start(compile_share, items, capability, k, n, most) for k in range(n if items else 0)]


def compile_share(items: list[Item], capability: int, k: int, n: int, most: int) -> None:
    """Compiles every n-th of the kernels, from the k-th on."""
    torch.set_num_threads(1)
    mine = launches_of(items)[k::n][:most]
    for launch in mine:
        compiled(*launch, capability)
    print(f"{len(mine)} kernels compiled", flush=True)


def compiled(kernel: Any, arguments: list, constants: dict[str, Any], capability: int) -> Any:
    """The kernel, compiled and in Triton's cache, where a launch on such a GPU finds it."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    absent = SimpleNamespace(  # all that Triton asks of a driver in order to compile
        get_current_device=lambda: capability,  # it keeps the kernels of each device apart
        get_current_stream=lambda device=None: 0,
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
    )
    driver.set_active(absent)
    return nhwc_norm.as_triton(kernel).warmup(*arguments, grid=(1,), **constants)


def resources(kernel: Any) -> str:
    """What a compiled kernel takes: registers, bytes of spill stores and of spill loads, bytes of shared memory."""
    from triton.backends.nvidia.compiler import get_ptxas

    target, capability = re.search(r"^\.target (sm_(\d+)\w*)", kernel.asm["ptx"], re.MULTILINE).groups()
    command = [get_ptxas(int(capability)).path, "-v", f"--gpu-name={target}", "/dev/stdin", "-o", os.devnull]
    said = subprocess.run(command, input=kernel.asm["ptx"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads.*Used (\d+) registers", said, re.DOTALL)
    return "registers {2:>3}, spills {0:>3} {1:>3}, shared {3:>5}".format(*found.groups(), kernel.metadata.shared)


if __name__ == "__main__":
    shown = launches_of([Item("in_turn", 0, RESNET, batch_size=n, speedups=NEW) for n in (16, 1)])
    for capability in (A100, H100):
        for kernel, arguments, constants in shown:
            flags = {name: value for name, value in constants.items() if name.isupper() or name == "num_warps"}
            said = resources(compiled(kernel, arguments, constants, capability))
            print(f"sm_{capability}: {said}  {kernel.__name__} {flags}", flush=True)
