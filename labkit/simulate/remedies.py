"""How much a recorded step could gain at most if one cause of its time were gone: the trace, played again without it.

Shares of idle or busy time do not answer this: what one cause hides another one is waiting behind. So each cause is
taken out by itself, the rest stays as recorded, and the wall times are compared. Causes that overlap are therefore not
counted twice, and the gains of two of them cannot be added up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pandas

from labkit.simulate.cost_model import Roofline
from labkit.simulate.trace_file import Replay
from labkit.simulate.what_if import check, read_launches, waited
from labkit.traces.achieved import memory_bound
from labkit.traces.dependencies import in_order
from labkit.traces.kinds import fine_kinds
from labkit.traces.rank import Rank

PARTS = ("data", "host", "compute", "memory", "communication")  # of the work, as the summary has them
TRY = {
    "data loading": "more loader workers, pin_memory and prefetching, pictures decoded once; labkit: workers=",
    "launches": 'fewer and larger launches: torch.compile, a CUDA graph, a larger batch; labkit: "graph", "batched"',
    "copies": "pinned memory and non_blocking copies, data that stay on the GPU, no .item() in the loop",
    "communication": "larger buckets, a faster network, 16-bit gradients, fewer exchanges",
    "waiting for other ranks": "the same work for each rank: equal batches and pictures; find the slow rank's cause",
    "attention": "a fused kernel: scaled_dot_product_attention, FlexAttention; 16 bits",
    "convolutions": '16 bits, TF32, channels_last, cudnn.benchmark; labkit: "bf16", "channels_last"; lighter networks',
    "layout conversions": 'channels_last: pictures and weights with the channels last; labkit: "channels_last"',
    "matrix products": "16 bits, TF32, sizes that are multiples of 8 or 16",
    "normalisation": "torch.compile fuses it with its neighbours; channels_last",
    "optimiser": 'one kernel for all weights: fused=True; labkit: "fused_adam"',
    "pointwise and other": "torch.compile fuses them; work in place; 16 bits",
    "memory-bound kernels": "16 bits halve the bytes; torch.compile moves them once for several operators",
}


class PriceList:
    """A rank's recording, played again without one cause after another.

    Args:
        rank: the recording.
        ranks: all ranks of the training, this one too.

    Attributes:
        doubt: a sentence if the unchanged replay differs from the recording by more than a twentieth, else "".

    Raises:
        TraceError, LabkitError: as `labkit.Trace.remedies`.
    """

    def __init__(self, rank: Rank, ranks: Collection[Rank]) -> None:
        self.rank = rank
        self.recorded = read_launches(rank)
        self.doubt = check(rank, self.recorded)
        self.wall = _wall(self.recorded)
        self.table = in_order(rank)
        self.waited = waited(rank, ranks)

    def remedies(self, roofline: Roofline | None = None) -> pandas.DataFrame:
        """The rows of `labkit.Trace.remedies`."""
        gains = self._without_host() | self._without_kinds(fine_kinds(self.table))
        if roofline is not None:
            memory = memory_bound(self.rank, roofline, self.table["call_begin"])
            gains |= {"memory-bound kernels": self._gain({"kernel_us": np.where(memory, 0.0, self.table["duration"])})}
        if self.waited is not None:
            gains["waiting for other ranks"] = self._gain(
                {"kernel_us": self.table["duration"].to_numpy() - self.waited}
            )
        table = pandas.DataFrame(gains.items(), columns=["cause", "us"])
        left = self.wall - table["us"]
        table["share_of_wall"] = table["us"] / (self.wall or np.nan)
        table["times_faster_at_most"] = np.where(left > 0, self.wall / left.where(left > 0), np.inf)
        table["try"] = table["cause"].map(TRY)
        return table.sort_values("us", ascending=False, kind="stable", ignore_index=True)

    def costs(self) -> dict[str, float]:
        """The shares of the wall time that would be gone without each of `PARTS`; 0 for a part that is not there."""
        part_of = {"data loading": "data", "launches": "host"}
        gains = {part_of[cause]: us for cause, us in self._without_host().items()}
        gains |= self._without_kinds(self.table["kind"])
        return {part: gains.get(part, 0.0) / (self.wall or np.nan) for part in PARTS}

    def _without_host(self) -> dict[str, float]:
        """What is gained without the loading of data, and without all other work of the host."""
        host, data = (
            np.array([getattr(one, name) for one in self.recorded.launches]) for name in ("host_us", "data_us")
        )
        gains = {"data loading": self._gain({"host_us": host - data})} if data.any() else {}
        return gains | {"launches": self._gain({"host_us": data})}

    def _without_kinds(self, kinds: pandas.Series) -> dict[str, float]:
        """What is gained if the kernels of each kind take no time."""
        lasting = self.table["duration"].to_numpy()
        return {kind: self._gain({"kernel_us": np.where(kinds == kind, 0.0, lasting)}) for kind in kinds.unique()}

    def _gain(self, changed: Mapping[str, np.ndarray]) -> float:
        """Microseconds of the wall time that are saved if the launches have these numbers in place of theirs."""
        launches = self.recorded.launches
        for name, values in changed.items():
            launches = [replace(one, **{name: value}) for one, value in zip(launches, values.tolist(), strict=True)]
        return self.wall - _wall(replace(self.recorded, launches=launches))


def _wall(played: Replay) -> float:
    """From the first work on the GPU to the last."""
    timeline = played.timeline
    return float(timeline.kernel_end.max() - timeline.kernel_start.min())
