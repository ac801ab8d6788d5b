"""Code that the lessons use without explaining it.

A step that keeps its gradients, the tensors that a network saves, its passes, the work of each module, a program on
several ranks, and tables for narrow pages.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook

from labkit.errors import LabkitError
from labkit.models.deviation import DeviationGAN
from labkit.models.step import Batch, Step
from labkit.simulate import step_operators

if TYPE_CHECKING:
    import pandas


class RecordGradients(Step):
    """A step that keeps the gradients of its last call in `gradients`: by player, one flat tensor.

    They are those at the output of every convolution and those of every weight, before the optimisers' step.

        step = labkit.make_step(model, RecordGradients)
        step(real_a, real_b)
        step.gradients["generators"]
    """

    gradients: dict[str, Tensor]

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:  # noqa: D102
        self._parts: dict[str, list[Tensor]] = defaultdict(list)
        losses = super().__call__(real_a, real_b)
        self.gradients = {player: torch.cat(parts) for player, parts in self._parts.items()}
        return losses

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:  # noqa: D102
        def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and output.requires_grad:
                output.register_hook(lambda gradient: self._parts[player].append(gradient.flatten()))

        with register_module_forward_hook(keep):
            return super().losses(player, batch)

    def backward(self, loss: Tensor, player: str) -> None:  # noqa: D102
        super().backward(loss, player)
        self._parts[player] += [weight.grad.flatten() for weight in self.players[player] if weight.grad is not None]


def passes(step: Step, *pictures: Tensor) -> Counter[str]:
    """How often each of the model's networks runs forward in a step, by its name, for example "G_A".

    Args:
        step: which the call trains.
        pictures: of A and of B.
    """
    ran: Counter[str] = Counter()
    hooks = [
        network.register_forward_pre_hook(lambda *_, name=name: ran.update([name]))
        for name, network in step.model.named_children()
    ]
    step(*pictures)
    for hook in hooks:
        hook.remove()
    return ran


class Alone(Step):
    """The part of a `DeviationGAN`'s step that one module's process computes, as in examples/parallel/apart.py."""

    module: str

    def run(self, batch: Batch) -> dict[str, Tensor]:  # noqa: D102
        if self.module == "discriminator":
            with torch.no_grad():
                self.losses("translator", batch)  # leaves in `batch` the fakes to judge
        losses = self.learn(self.module, batch)
        self.update(self.module)
        return losses


def module_flops(model: DeviationGAN, size: int = 256) -> dict[str, int]:
    """FLOPs of a step of "one process", and of each module's process if the modules are trained apart.

    Args:
        model: of stage "joint".
        size: height and width of the pictures, in pixels.
    """
    kinds: dict[str, list[Any]] = {"one process": []}
    kinds |= {one: [type("Alone", (Alone,), {"module": one})] for one in model.players()}
    return {name: sum(one.flops for one in step_operators(model, *kind, size=size)) for name, kind in kinds.items()}


def saved_tensors(network: nn.Module, picture: Tensor) -> list[tuple[str, Tensor]]:
    """The tensors that a forward pass saves for the backward pass, each with the kind of layer that asks for it.

    In the order in which they are saved. Weights are among them, and views of the same memory.

    Args:
        network: stays as it was.
        picture: its input, with a batch dimension.
    """
    saved: list[tuple[str, Tensor]] = []
    running: list[str] = []
    hooks = []

    def done(layer: nn.Module, inputs: Any, output: Any) -> None:
        running.pop()

    for layer in network.modules():
        hooks.append(layer.register_forward_pre_hook(lambda layer, _: running.append(type(layer).__name__)))
        hooks.append(layer.register_forward_hook(done))

    def keep(tensor: Tensor) -> Tensor:
        saved.append((running[-1], tensor))
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(picture)
    for hook in hooks:
        hook.remove()
    return saved


def spaced(table: pandas.DataFrame) -> pandas.DataFrame:
    """A table to show, its columns named with spaces for underscores, which a narrow page can break into lines."""
    return table.rename(columns=lambda name: name.replace("_", " "))


def torchrun(ranks: int, *command: str, nodes: int = 1) -> str:
    """What the ranks of a program print, started by torchrun with one thread each. They find this process's labkit.

    Args:
        ranks: how many there are, on all nodes together.
        command: a Python file, or "-m" and a module, and the arguments.
        nodes: how many times torchrun itself is started, as on so many machines; `ranks` is a multiple of it.

    Raises:
        LabkitError: the program failed. The message ends with what it wrote to stderr.
    """
    with socket.create_server(("localhost", 0)) as free:
        meeting = f"--rdzv-endpoint=localhost:{free.getsockname()[1]}"
    per_node = f"--nnodes={nodes}", f"--nproc-per-node={ranks // nodes}", "--rdzv-backend=c10d", meeting
    started = [sys.executable, "-m", "torch.distributed.run", *per_node, *command]
    # Windows has no libuv
    env = {**os.environ, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    piped: dict[str, Any] = dict(env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = [subprocess.Popen(started, **piped) for _ in range(nodes)]
    printed = [one.communicate() for one in running]
    for one, (_, errors) in zip(running, printed, strict=True):
        if one.returncode:
            raise LabkitError(f"{' '.join(command)} failed on a rank: {errors[-2000:]}")
    return "".join(output for output, _ in printed)
