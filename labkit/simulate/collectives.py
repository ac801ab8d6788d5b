"""The collectives of a data-parallel step, COUNTED: the real step on the meta device, as one of several ranks.

The other ranks do not exist: PyTorch's process group "fake" has any number of them, and its collectives return
immediately. Under it runs the real `DistributedDataParallel` (DDP), so the buckets that it fills with gradients, their
order and their sizes are the real ones. Sources: Li et al. 2020, "PyTorch Distributed", section 4, and
torch.testing._internal.distributed.fake_pg.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.models.model import Model
from labkit.simulate.cuda_stubs import Schedule
from labkit.simulate.meta_device import LiveBytes, Operator, Recorder, meta_step


@dataclass(frozen=True)
class Collective:
    """One exchange between all ranks.

    Attributes:
        name: of PyTorch's operator, for example `c10d::allreduce_`.
        bytes: the size of the exchanged tensors on each rank.
        dtype: the type of their numbers, for example "float32".
        range: labkit's range around it, without "labkit: ", or "" for the losses, which belong to no player.
        ready: how many of the step's operators come before it. The data is ready when they have run.
        awaited: the position of the first operator that has to wait for it, since it may read the result.
    """

    name: str
    bytes: int
    dtype: str
    range: str
    ready: int
    awaited: int


@dataclass(frozen=True)
class SharedStep:
    """A data-parallel step as one rank runs it.

    Attributes:
        operators: in their order, those with which DDP copies gradients into its buckets among them.
        collectives: in their order.
        batch_size: pictures of each domain on this rank.
        memory: the peak memory of the step's tensors in bytes, with DDP's buckets, as `step_memory` counts it.
    """

    operators: tuple[Operator, ...]
    collectives: tuple[Collective, ...]
    batch_size: int
    memory: int

    @property
    def gradient_bytes(self) -> int:
        """The size of all gradients that are exchanged in a step."""
        return sum(collective.bytes for collective in self.collectives if collective.range)


def shared_step(model: Model, *speedups: str | type, batch_size: int = 1, size: int = 256) -> SharedStep:
    """The operators and collectives of one step of `model` under the speed-up "data_parallel", on one of two ranks.

    The step is the third: after its first backward pass DDP divides the gradients into buckets in the order in which
    they were ready, and before that there is one bucket only. With more ranks the collectives are the same, and only
    the pool's share gets smaller. `model` itself is not touched.

    Args:
        model: a `labkit.CycleGAN` or another model with players.
        speedups: further ones, as for `step_operators`.
        batch_size: pictures of each domain on each rank.
        size: height and width of the pictures, in pixels.

    Raises:
        LabkitError: `model` is another network (`program_operators` records those), the batch does not fit it, or a
            speed-up cannot be recorded, does not suit the model or excludes data_parallel.
        ValueError: this process is in a process group already, as under torchrun.
    """
    names = (*speedups, "data_parallel")
    counted_step = meta_step(model, *names, batch_size=batch_size, size=size)
    with LiveBytes() as live, _RanksThatAreNotThere(), fake_ranks(2), counted_step as (step, batch, schedule):
        recorder = _CollectiveRecorder(schedule)
        for ddp in step.ddp.values():  # type: ignore[attr-defined]
            ddp.logger = mock.Mock()  # DDP's statistics know no meta device, and say so on stderr
            # A function without annotations, since DDP refuses ours.
            ddp.register_comm_hook(recorder, lambda state, bucket: _exchange(state, bucket))
        for _ in range(2):
            step(*batch)
        memory = live.peak  # before we record, which keeps every tensor
        with recorder:
            step(*batch)
    return SharedStep(tuple(recorder.operators), tuple(recorder.collectives), batch_size, memory)


@contextmanager
def fake_ranks(count: int) -> Iterator[None]:
    """Inside, this process is rank 0 of `count`. No other one exists: collectives leave their tensors as they are."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=count, store=FakeStore())
    try:
        # Before its first step DDP compares the shapes of all ranks' weights, which the meta device cannot do.
        with mock.patch("torch.nn.parallel.distributed._verify_param_shape_across_processes"):
            yield
    finally:
        dist.destroy_process_group()


def _exchange(recorder: _CollectiveRecorder, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    recorder.gradients = len(bucket.parameters())
    dist.all_reduce(bucket.buffer())
    recorder.gradients = 0
    if bucket.is_last():
        recorder.end_of_backward()
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class _RanksThatAreNotThere(TorchDispatchMode):
    """The ranks agree on the order of DDP's buckets in a tensor on the device, and read it on the host.

    On the meta device it has no values. We leave the host's own values in their place, which are those of rank 0.
    """

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if operator is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta:
            return args[0]
        return operator(*args, **(kwargs or {}))


class _CollectiveRecorder(Recorder):
    """Inside `with`, collects the operators and, in the list `collectives`, the collectives.

    Attributes:
        gradients: the number of gradients in the bucket that is being exchanged, 0 outside of a bucket.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.collectives: list[Collective] = []
        self.gradients = 0
        self._buckets: list[tuple[int, int]] = []  # of this backward pass: place in `collectives`, number of gradients

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if operator.namespace == "c10d":  # the operators that send data between ranks
            self._note(operator.name(), [leaf for leaf in tree_leaves([args, kwargs]) if isinstance(leaf, Tensor)])
        return super().__torch_dispatch__(operator, types, args, kwargs)

    def _note(self, name: str, tensors: list[Tensor]) -> None:
        if self.gradients:
            self._buckets.append((len(self.collectives), self.gradients))
        size = sum(tensor.numel() * tensor.itemsize for tensor in tensors)
        here, dtype = len(self.operators), str(tensors[0].dtype).removeprefix("torch.")
        self.collectives.append(Collective(name, size, dtype, self.range, here, here))

    def end_of_backward(self) -> None:
        """DDP waits for one bucket after the other, and for each gradient in it makes a view of the mean."""
        awaited = len(self.operators)
        for place, gradients in self._buckets:
            self.collectives[place] = replace(self.collectives[place], awaited=awaited)
            awaited += gradients
        self._buckets.clear()
