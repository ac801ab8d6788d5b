"""Code that the lessons use and do not explain.

A step that keeps its gradients, and the tables that the lessons show: the cost of a study's
runs, the work of each player, ratios, a survey's times.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from labkit import best_within, time_to_quality
from labkit.models.step import Batch, Step
from labkit.simulate import Operator

if TYPE_CHECKING:
    import pandas


class Listening(Step):
    """A step that keeps the gradients of its last call in `heard`: by player, one flat tensor.

    The gradients are those at the output of every convolution and those of every weight, before the optimisers' step.

        step = labkit.make_step(model, Listening)
        step(real_a, real_b)
        step.heard["generators"]
    """

    heard: dict[str, Tensor]

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:  # noqa: D102
        self._parts: dict[str, list[Tensor]] = defaultdict(list)
        losses = super().__call__(real_a, real_b)
        self.heard = {player: torch.cat(parts) for player, parts in self._parts.items()}
        return losses

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:  # noqa: D102
        def listen(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(lambda gradient: self._parts[player].append(gradient.flatten()))

        convolutions = (layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d))
        hooks = [layer.register_forward_hook(listen) for layer in convolutions]
        losses = super().losses(player, batch)
        for hook in hooks:
            hook.remove()
        return losses

    def backward(self, loss: Tensor, player: str) -> None:  # noqa: D102
        super().backward(loss, player)
        self._parts[player] += [weight.grad.flatten() for weight in self.players[player] if weight.grad is not None]


def learning_summary(curves: pandas.DataFrame, seconds: float) -> pandas.DataFrame:
    """Medians over the seeds: the cost of each step, its cost to the goal, and its best look within `seconds`.

    A run that never reached the goal counts as infinite, so a median of infinity says that most runs failed.

    Args:
        curves: from `labkit.study`.
        seconds: of training, for the columns "fg in ... s", "bg in ... s" and "changed in ... s" (percent).

    Returns:
        A row for each name, in the order of `curves`.

        | column | meaning |
        |---|---|
        | GFLOP a step, ms a step | the cost of a step |
        | images to the goal, seconds to the goal, TFLOP to the goal | the cost until the goal is reached |
        | runs that reached it | a share, such as "60%" |
        | fg in ... s, bg in ... s, changed in ... s | the best look |

    Raises:
        LabkitError: a run has no look that early.
    """
    import pandas

    last = curves.groupby("name", sort=False).last()
    taken = time_to_quality(curves)
    medians = taken.fillna(math.inf).groupby("name", sort=False).median()
    best = best_within(curves, seconds).groupby("name", sort=False).median()
    return pandas.DataFrame(
        {
            "GFLOP a step": last["flops"] / last["images"] / 1e9,
            "ms a step": 1e3 * last["seconds"] / last["images"],
            "images to the goal": medians["images"],
            "seconds to the goal": medians["seconds"],
            "TFLOP to the goal": medians["flops"] / 1e12,
            "runs that reached it": taken["images"].notna().groupby("name", sort=False).mean().map("{:.0%}".format),
            **{f"{metric} in {seconds:g} s": best[metric] for metric in ("fg", "bg", "changed")},
        }
    )


def work_by_player(operators: Iterable[Operator]) -> Counter[str]:
    """FLOPs of a step by player, for example "generators". Players without FLOPs are left out.

    Args:
        operators: of one step, from `labkit.simulate`.
    """
    work: Counter[str] = Counter()
    for operator in operators:
        if operator.flops:
            work[operator.range.partition(" ")[0]] += operator.flops
    return work


def ratio_table(values: pandas.Series, over: Sequence[str], under: Sequence[str]) -> pandas.DataFrame:
    """``values[row] / values[column]`` for each row of `over` and each column of `under`."""
    import pandas

    table = pandas.DataFrame({name: values[list(over)] / values[name] for name in under})
    return table.rename_axis("how many times")
