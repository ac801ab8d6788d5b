"""A ResNet generator as a pipeline: each rank has some of its layers, and passes its result on to the next rank.

    torchrun --nproc-per-node=2 examples/parallel/pipeline_parallel.py

This runs batches through such a pipeline, and compares outputs, losses and gradients with the whole generator's.

A batch is cut into m microbatches, so that p ranks can work at the same time, each on another one. At the beginning the
last ranks wait for the first microbatch, at the end the first ranks for the last gradient. The bubble, the share of the
time that a rank waits, is (p - 1) / (m + p - 1) if all stages take equally long. Both schedules have the same bubble:

- "gpipe": all forward passes, then all backward passes. A rank keeps the activations of m microbatches.
- "1f1b": as soon as a rank can, one forward and one backward pass in turn. Rank k of p keeps those of p - k at most.

So a pipeline needs batches of many pictures: with CycleGAN's batch of 1 the ranks would work one after another. The
ranks exchange (B, channels, H, W) numbers once a boundary in either pass. Split blocks do so in every block.

Sources: Huang et al. 2019, "GPipe", section 2, and Narayanan et al. 2019, "PipeDream", section 3.2. PipeDream updates
the weights while batches overlap. Here each batch ends before the update, as in Narayanan et al. 2021, "Efficient
large-scale language model training on GPU clusters", section 2.2.
"""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.flop_counter import FlopCounterMode

from labkit import LabkitError, ranks
from labkit.networks import ResnetGenerator, Skip
from labkit.variants import has_batch_norm

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
BEGINS = (nn.ReflectionPad2d, nn.Conv2d, nn.ConvTranspose2d, Skip)  # layers that a stage may begin with


class Pipeline:
    """This rank's stage of a generator, and the passes of a batch through all of them.

    The stages are chosen so that the slowest one has as little work as possible. `stage` holds this rank's layers of
    the generator that was given, the very same weights, under the names that they have there: the state_dicts of all
    stages together are the generator's.

    Args:
        generator: on the device of this rank, with the same weights on every rank. (In a U-Net skips lead from the
            first layers to the last ones, across the stages between.)
        microbatches: the number of parts of a batch.
        loss: from the translated pictures and the targets, a mean over pictures. The last rank computes it.
        schedule: "gpipe" or "1f1b".

    Raises:
        LabkitError: the generator cannot be cut into as many stages as there are ranks, or has batch norm.
        ValueError: "1f1b" needs as many microbatches as ranks, or there is no process group.
    """

    def __init__(
        self,
        generator: ResnetGenerator,
        microbatches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        schedule: str = "gpipe",
    ):
        if has_batch_norm(generator):
            raise LabkitError("Batch norm would take its mean over a microbatch instead of the batch.")
        self.rank, self.ranks, self.microbatches = ranks.number(), ranks.count(), microbatches
        first, end = cuts(generator, self.ranks)[self.rank : self.rank + 2]
        self.stage = nn.Sequential(OrderedDict(model=generator.model[first:end]))
        device = next(self.stage.parameters()).device
        self.schedule = SCHEDULES[schedule](
            PipelineStage(self.stage, self.rank, self.ranks, device),
            microbatches,
            lambda output, target: loss(output, target) / microbatches,
            scale_grads=False,  # PyTorch would divide everything in .grad, also what was there before
        )

    def step(self, pictures: Tensor, targets: Tensor) -> tuple[Tensor, Tensor] | None:
        """Forward and backward pass of a batch. Gradients are added to `.grad` of the stage's weights.

        Args:
            pictures: (B, 3, H, W) in [-1, 1], read by the first rank only. The shape is the same in every call.
            targets: B of whatever `loss` takes, read by the last rank only.

        Returns:
            On the last rank the translated pictures, (B, 3, H, W) in [-1, 1], and the loss. On the others None.

        Raises:
            LabkitError: the microbatches cannot share the batch evenly.
        """
        if len(pictures) % self.microbatches:
            raise LabkitError(f"{self.microbatches} microbatches cannot share {len(pictures)} pictures evenly.")
        given = (pictures,) if self.rank == 0 else ()
        if self.rank < self.ranks - 1:
            self.schedule.step(*given)
            return None
        losses: list[Tensor] = []
        output = self.schedule.step(*given, target=targets, losses=losses)
        return output.detach(), torch.stack(losses).sum().detach()


def cuts(generator: ResnetGenerator, stages: int) -> tuple[int, ...]:
    """The layers of `generator.model` where stages begin, and its end. The slowest stage has the least work possible.

    A stage begins with a padding, a convolution that has none before it, or a block: norm and activation stay with
    their convolution, since an activation in place may not change a picture that came from another rank.

    Raises:
        LabkitError: there are more stages than layers where one can begin.
    """
    layers = list(generator.model)
    begins = [
        k
        for k, layer in enumerate(layers)
        if isinstance(layer, BEGINS) and not (k and isinstance(layers[k - 1], nn.ReflectionPad2d))
    ]
    if stages > len(begins):
        raise LabkitError(f"{stages} ranks, but this generator can be cut into {len(begins)} stages at most.")
    costs, ends = work(generator), len(layers)
    candidates = ((0, *inner, ends) for inner in itertools.combinations(begins[1:], stages - 1))
    return min(candidates, key=lambda cut: max(sum(costs[a:b]) for a, b in itertools.pairwise(cut)))


def work(generator: ResnetGenerator) -> list[int]:
    """Floating-point operations of each layer. Their ratios do not depend on the size of the pictures."""
    costs, picture = [], torch.empty(1, 3, 64, 64, device="meta")
    for layer in copy.deepcopy(generator.model).to("meta", torch.float32):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            picture = layer(picture)
        costs.append(counter.get_total_flops())
    return costs


def main() -> None:
    """Prints for either schedule how far the pipeline is from the whole generator, and the layers of each stage."""
    with ranks.process_group():
        torch.manual_seed(0)  # the same weights and pictures on every rank
        for schedule in SCHEDULES:
            one_device = ResnetGenerator(blocks=3, width=16).double()
            pipeline = Pipeline(copy.deepcopy(one_device), 4, nn.functional.mse_loss, schedule)
            pairs = []  # of tensors, one of this rank and one of the whole generator
            for _ in range(2):  # batches, whose gradients add up
                pictures, targets = (torch.rand(8, 3, 64, 64, dtype=torch.float64) * 2 - 1 for _ in range(2))
                right = one_device(pictures)
                loss = nn.functional.mse_loss(right, targets)
                loss.backward()
                if (result := pipeline.step(pictures, targets)) is not None:
                    pairs += zip(result, (right, loss), strict=True)
            for name, weight in pipeline.stage.named_parameters():
                pairs.append((weight.grad, one_device.get_parameter(name).grad))
            far = [(mine - its).abs().max().item() for mine, its in pairs]
            stages = ranks.gathered(len(pipeline.stage.model))
            [largest] = ranks.largest([max(far)])
            if ranks.number() == 0:
                print(f"{schedule}: stages of {stages} layers, largest difference of a number {largest:.1e}")


if __name__ == "__main__":
    main()
