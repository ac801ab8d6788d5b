"""How a step scales to many GPUs, before buying them: SIMULATED.

Three plans of dividing the work:

- "data": every GPU computes a part of the batch, and gradients are averaged (Li et al. 2020).
- "data x pipeline": the networks are divided among p GPUs, m micro-batches pass through them one behind the other, and
  while the pipeline fills and empties GPUs are idle for (p - 1) / (m + p - 1) of the time (Huang et al. 2019, "GPipe",
  section 2). We let all stages take equally long and leave out the sending of activations, so it is a best case.
- "data x tensor": t GPUs of a node divide the channels of each residual block's convolutions, and add up the results
  once in the forward and once in the backward pass (Shoeybi et al. 2019, "Megatron-LM", section 3). We divide only the
  time of these convolutions by t, and leave the norms between them undivided.

In the last two plans p or t GPUs together are one replica, and the replicas divide the batch. What the model leaves out
makes real steps slower: ranks wait for the slowest of them, and links are shared with other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch

from labkit.errors import LabkitError, check_known
from labkit.simulate.collectives import Collective, SharedStep
from labkit.simulate.communication import NETWORKS, Network, all_reduce_us
from labkit.simulate.cost_model import ROOFLINES, Roofline
from labkit.simulate.operators import Operator
from labkit.simulate.replay import HOST_US, replay
from labkit.simulate.shared_replay import with_collectives
from labkit.stamp import stamp

if TYPE_CHECKING:
    import pandas

GPUS = tuple(2**power for power in range(11))
TENSOR = "tensor"  # the range of the collectives inside of residual blocks
STATES = 5  # weights, gradients, DDP's buckets and two moments of Adam, each of the size of the gradients


def scaling(
    steps: SharedStep | Sequence[SharedStep],
    networks: Mapping[str, Network] = NETWORKS,
    gpus: Sequence[int] = GPUS,
    host_us: float = HOST_US,
    device: str = "A100",
    stages: int = 1,
    tensor: int = 1,
    micro_batches: int = 8,
) -> pandas.DataFrame:
    """Speed, efficiency and memory of a step on more and more GPUs: SIMULATED, a row for each network and number.

    With one step every replica keeps its batch, so the whole batch grows with the GPUs: weak scaling. With steps of
    several batch sizes the whole batch is the largest of them, and the more GPUs, the less for each: strong scaling.
    It ends where no step of the smaller batch size was counted, at the latest with a picture a GPU.

    Args:
        steps: from `shared_step`.
        networks: by name.
        gpus: numbers of GPUs.
        host_us: microseconds of host time for every launch: an assumption, vary it.
        device: the roofline, one of `ROOFLINES`.
        stages: GPUs in a pipeline; a replica's batch is then `micro_batches` times that of the step.
        tensor: GPUs that share each residual block; at most a node.
        micro_batches: of a pipeline.

    Returns:
        The columns: SIMULATED, True; device; scaling, "weak" or "strong"; plan; network; gpus; batch, pictures of each
        domain on a replica in a step; step_us; communication_us, the sum over the collectives; exposed_us, how much
        shorter the step would be if they took no time; bubble, the share of the step in which a pipeline's GPU is idle;
        steps_per_s; images_per_s, of each domain, of all GPUs; efficiency, images a second and GPU over those of one
        GPU by itself; memory, bytes of tensors on a GPU. ``attrs["stamp"]`` has all assumptions.

    Raises:
        LabkitError: the device is unknown; there is no step; a number of GPUs is not one of whole replicas or whole
            nodes; or a pipeline is also to be divided by tensors, or to scale strongly.
    """
    import pandas

    check_known("device", device, ROOFLINES)
    counted = [steps] if isinstance(steps, SharedStep) else list(steps)
    _check(counted, gpus, stages, tensor)
    played = {step.batch_size: _Played(step, host_us, ROOFLINES[device], tensor) for step in counted}
    whole, replica = max(played), stages * tensor
    alone = _Played(played[whole].step, host_us, ROOFLINES[device], 1).free_us
    plan = "data" + f" x pipeline of {stages}" * (stages > 1) + f" x tensor of {tensor}" * (tensor > 1)
    rows = []
    for name, network in networks.items():
        for number in gpus:
            replicas = number // replica
            batch = whole if len(counted) == 1 else whole // max(1, replicas)
            if replicas < 1 or batch not in played:
                continue
            pictures = batch * (micro_batches if stages > 1 else 1)
            times = played[batch].times(replicas, network, stages, micro_batches)
            images = replicas * pictures / times["step_us"] * 1e6
            row: dict[str, object] = {
                "SIMULATED": True,
                "device": device,
                "scaling": "weak" if len(counted) == 1 else "strong",
                "plan": plan,
            }
            row |= {"network": name, "gpus": number, "batch": pictures, **times}
            row |= {"steps_per_s": 1e6 / times["step_us"], "images_per_s": images}
            row |= {"efficiency": images / (number * whole / alone * 1e6)}
            rows.append(row | {"memory": played[batch].memory(stages, micro_batches)})
    table = pandas.DataFrame(rows)
    assumed = {"host_us": host_us, "roofline": asdict(ROOFLINES[device]), "micro_batches": micro_batches}
    known = {name: asdict(network) for name, network in networks.items()}
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": f"SIMULATED {device}", **assumed, "networks": known}
    return table


def _check(counted: Sequence[SharedStep], gpus: Sequence[int], stages: int, tensor: int) -> None:
    if not counted:
        raise LabkitError("steps: there is none. Count at least one with labkit.simulate.shared_step.")
    if stages > 1 and (tensor > 1 or len(counted) > 1):
        raise LabkitError(f"stages={stages}: a pipeline's batch is fixed here. Give one step, and tensor=1.")
    if odd := [number for number in gpus if number > stages * tensor and number % (stages * tensor)]:
        raise LabkitError(f"gpus={odd[0]}: a replica takes {stages * tensor} GPUs. Give multiples of it.")


def bubble(stages: int, micro_batches: int) -> float:
    """The share of the time, from 0 to 1, in which a rank of a pipeline waits, if all stages take equally long.

    The last stage begins after stages - 1 units of time, and works for one unit on each micro-batch. Source: Huang et
    al. 2019, "GPipe", section 2.
    """
    return (stages - 1) / (micro_batches + stages - 1)


class _Played:
    """A step whose operators are turned into kernels once, to be played with any times of its collectives.

    Attributes:
        free_us: microseconds of the step if its collectives take no time.
        blocks: the share of the residual blocks' convolutions in all weights.
    """

    def __init__(self, step: SharedStep, host_us: float, roofline: Roofline, tensor: int) -> None:
        self.tensor, self.host_us = tensor, host_us
        convolutions = block_convolutions(step.operators)
        sums = sums_in_blocks(step.operators, convolutions) if tensor > 1 else []
        collectives = sorted([*step.collectives, *sums], key=lambda collective: collective.ready)
        self.step = replace(step, collectives=tuple(collectives))
        self.blocks = _share_of_weights(step.operators)
        played = replay(step.operators, host_us, roofline, steps=1)
        kernels = zip(played.launches, played.sources, strict=True)
        launches = [
            replace(launch, kernel_us=launch.kernel_us / (tensor if source.operator in convolutions else 1))
            for launch, source in kernels
        ]
        self.played = replace(played, launches=launches)
        self.free_us = self.played.timeline.wall

    def times(self, replicas: int, network: Network, stages: int, micro_batches: int) -> dict[str, float]:
        """The times of a step, as columns of the table."""
        apart = _between_replicas(network, stages * self.tensor)

        def us_of(collective: Collective) -> float:
            if collective.range == TENSOR:
                return all_reduce_us(collective.bytes, self.tensor, network)
            return all_reduce_us(collective.bytes * (self._part(stages) if collective.range else 1), replicas, apart)

        exposed = self._step_us(us_of) - self.free_us
        busy = self.free_us * micro_batches / stages if stages > 1 else self.free_us
        computing = busy / (1 - bubble(stages, micro_batches))
        step_us = computing + exposed
        communication = sum(map(us_of, self.step.collectives))
        return {
            "step_us": step_us,
            "communication_us": communication,
            "exposed_us": exposed,
            "bubble": (computing - busy) / step_us,
        }

    def _step_us(self, us_of: Callable[[Collective], float]) -> float:
        """Microseconds of the step with these times of the collectives; at least those without any."""
        times = [us_of(collective) for collective in self.step.collectives]
        if not any(times):
            return self.free_us
        return max(self.free_us, with_collectives(self.played, self.step, us_of, self.host_us).timeline.wall)

    def _part(self, stages: int) -> float:
        """The share of all weights, and of their gradients, that a GPU holds."""
        return (1 - self.blocks + self.blocks / self.tensor) / stages

    def memory(self, stages: int, micro_batches: int) -> float:
        """Bytes on a GPU. A stage of a pipeline keeps its part of the activations of all micro-batches."""
        states = STATES * self.step.gradient_bytes
        activations = max(0, self.step.memory - states)
        return states * self._part(stages) + activations * (micro_batches / stages if stages > 1 else 1)


def _between_replicas(network: Network, members: int) -> Network:
    """The network between the replicas of `members` GPUs. The members are neighbours, and share a node's adapters."""
    in_node = max(1, network.gpus_per_node // members)
    between = network.between
    if between is not None:
        between = replace(between, bytes_per_s=between.bytes_per_s * in_node / network.gpus_per_node)
    return replace(network, gpus_per_node=in_node, between=between)


def block_convolutions(operators: Sequence[Operator]) -> list[int]:
    """The places of the convolutions of residual blocks, forward and backward: 3 x 3, as many channels out as in."""
    weight_at = {"aten::convolution": 1, "aten::convolution_backward": 2}
    return [
        place
        for place, operator in enumerate(operators)
        if operator.name in weight_at and _in_block(operator.inputs[weight_at[operator.name]])
    ]


def _in_block(weight: Sequence[int]) -> bool:
    return len(weight) == 4 and weight[0] == weight[1] and tuple(weight[2:]) == (3, 3)


def sums_in_blocks(operators: Sequence[Operator], convolutions: Sequence[int]) -> list[Collective]:
    """An all-reduce after the second of the two convolutions of each block, in the forward and in the backward pass.

    It sums the output of the block in the one, the gradient of its input in the other.
    """
    sums = []
    for name in ("aten::convolution", "aten::convolution_backward"):
        for place in [place for place in convolutions if operators[place].name == name][1::2]:
            summed, dtype = operators[place].outputs[0], operators[place].dtype
            size = math.prod(summed) * getattr(torch, dtype).itemsize
            sums.append(Collective("c10d::allreduce_", size, dtype, TENSOR, place + 1, place + 1))
    return sums


def _share_of_weights(operators: Sequence[Operator]) -> float:
    """The share of the residual blocks' convolutions in all the numbers that Adam steps over."""
    steps = {operator.range: operator.outputs for operator in operators if operator.range.endswith("optimizer")}
    weights = [weight for outputs in steps.values() for weight in outputs]
    numbers = sum(map(math.prod, weights))
    return sum(math.prod(weight) for weight in weights if _in_block(weight)) / numbers if numbers else 0.0
