"""fused_adam: Adam's whole update in a few kernels."""

from __future__ import annotations

from labkit.variants import SpeedUp


class FusedAdam(SpeedUp):
    """Has Adam read and write each weight, its gradient and its moments once.

    Differs from the baseline in one seam, `adam_options`. Plain Adam is a row of operators (decay, square, root,
    divide, ...) each of which goes through memory: on a CPU for every weight by itself, on a GPU for all together.

    Improves: the optimizer range, that is launches and memory traffic. Does not help where the forward and the backward
    pass are nearly all of a step: large pictures, large batches.
    """

    name = "fused_adam"
    changes = "Adam's update is one fused operator"
    improves = "optimizer"
    needs = "nothing; fp16 and graph include it"

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "fused": True}
