"""The most that a recorded step could gain if one cause of its time were gone: the trace, played again without it.

Shares of idle or busy time do not answer this, since one cause can hide another one. So each cause is taken out by
itself, the rest stays as recorded, and the wall times are compared. Causes that overlap are therefore not counted
twice, and the gains of two of them cannot be added up.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np
import pandas

from labtrace import audit, host
from labtrace.dependencies import dependencies
from labtrace.dialects import fine_kinds
from labtrace.errors import LabkitError
from labtrace.rank import Rank
from labtrace.replay.launch_queue import run
from labtrace.replay.recorded_replay import queue_settings, replay_doubt, waits_for_ranks
from labtrace.tables import LONG_DELAY_US

RANKS = "waiting for other ranks"
TRY = {
    host.DATA: "more loader workers, pin_memory and prefetching, pictures decoded once; labkit: workers=",
    host.LAUNCHES: 'fewer and larger launches: torch.compile, a CUDA graph, a larger batch; labkit: "graph", "batched"',
    host.START_UP: "nothing in training: leave the first steps out of the recording (the profiler's wait and warmup)",
    host.MEMORY: "let the allocator keep its memory: no empty_cache(), the same shapes, pinned buffers made "
    "once; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    host.WAITS: "no .item(), print or copy to the host in the loop; pinned memory and non_blocking copies",
    host.OTHER: "find it by name in Trace.gaps(): Python between the steps, work on the CPU; do it in another process",
    "copies": "pinned memory and non_blocking copies, data that stay on the GPU, no .item() in the loop",
    "communication": "larger buckets, a faster network, 16-bit gradients, fewer exchanges",
    RANKS: "the same work for each rank: equal batches and pictures; find the slow rank's cause",
    "attention": "a fused kernel: scaled_dot_product_attention, FlexAttention; 16 bits",
    "convolutions": '16 bits, TF32, channels_last, cudnn.benchmark; labkit: "bf16", "channels_last"; lighter networks',
    "layout conversions": 'channels_last: pictures and weights with the channels last; labkit: "channels_last"',
    "matrix products": "16 bits, TF32, sizes that are multiples of 8 or 16",
    "normalisation": "torch.compile fuses it with its neighbours; channels_last",
    "optimiser": 'one kernel for all weights: fused=True; labkit: "fused_adam"',
    "pointwise and other": "torch.compile fuses them; work in place; 16 bits",
}
# The rule of `Remedies._check_waits`: the host was ahead if the GPU was busy for more than this share of the time, and
# more than this share of the kernels had a long delay. Then a replay without kernels must gain this share.
BUSY_SHARE, DELAYED_SHARE, LEAST_GAIN = 0.8, 0.5, 0.1


class Remedies:
    """A rank's recording, played again without one cause after another. Each replay is played once.

    Args:
        rank: the recording.
        ranks: all ranks of the training, this one too.

    Attributes:
        doubt: the faults of the recording or its replay, in a sentence or two, or "" if there are none.

    Raises:
        TraceError, LabkitError: as `labtrace.Trace.remedies`.
    """

    def __init__(self, rank: Rank, ranks: Collection[Rank]) -> None:
        unsound, too_much = audit.doubts(rank)
        if too_much:
            raise LabkitError(f"{unsound} So it cannot predict the effect of a change. Record again.")
        self.found = dependencies(rank)
        self.settings = queue_settings(self.found)
        self.table = self.found.kernels
        self.lasting, self.streams = self.table["duration"].to_numpy(), self.table["stream"].tolist()
        free, made = self.found.host_times()
        self.parts = host.divide(rank, free, made, self.table[self.found.copies])
        self.host_us = np.sum([*self.parts.values()], axis=0)
        begin, end = self._play(self.host_us, self.lasting)
        self.wall = max(end) - min(begin)
        said = [unsound, replay_doubt(rank, np.array(begin), np.array(end))]
        self.waited = waits_for_ranks(rank, ranks)
        if self.waited is not None and (missing := audit.missing_ranks(ranks)):
            said.append(f"{missing} of {len(ranks) + missing} ranks have no file here: the waits for them are unknown.")
        self.doubt = " ".join(filter(None, said))
        self._check_waits(rank)

    @cached_property
    def gains(self) -> dict[str, float]:
        """Microseconds of the wall time that are gained without each cause."""
        kinds = fine_kinds(self.table)
        gains = {cause: self._gain(host_us=self.host_us - us) for cause, us in self.parts.items() if us.any()}
        gains |= {host.LAUNCHES: gains.get(host.LAUNCHES, 0.0)}
        gains |= {kind: self._without(kinds == kind) for kind in kinds.unique()}
        if self.waited is not None:  # what communication costs is the rest
            gains["communication"] = self._gain(kernel_us=np.where(kinds == "communication", self.waited, self.lasting))
            gains[RANKS] = self._gain(kernel_us=self.lasting - self.waited)
        return gains

    @cached_property
    def costs(self) -> dict[str, float]:
        """The shares of the wall time that would be gone without each part of the work, as the summary has them."""
        us = {part: self._without(self.table["kind"] == part) for part in ("compute", "memory", "communication")}
        us |= {"data": self.gains.get(host.DATA, 0.0), "host": self._gain(host_us=self.parts[host.DATA])}
        return {part: gain / (self.wall or np.nan) for part, gain in us.items()}

    def rows(self) -> pandas.DataFrame:
        """The rows of `labtrace.Trace.remedies`."""
        table = pandas.DataFrame(self.gains.items(), columns=["cause", "us"])
        left = self.wall - table["us"]
        table["share_of_wall"] = table["us"] / (self.wall or np.nan)
        table["times_faster_at_most"] = np.where(left > 0, self.wall / left.where(left > 0), np.inf)
        table["try"] = table["cause"].map(TRY)
        return table.sort_values("us", ascending=False, kind="stable", ignore_index=True)

    def _check_waits(self, rank: Rank) -> None:
        """Raises `LabkitError` if the replay takes as long without kernels, though the host must have waited for them.

        It must have waited where the GPU was busy and most kernels waited long in the queue: the host was ahead.
        """
        queued = (rank.kernels["delay"] > LONG_DELAY_US).sum() / max(1, rank.kernels["delay"].notna().sum())
        busy = float(np.sum(rank.busy.end - rank.busy.begin)) / (rank.stop - rank.start)
        if busy <= BUSY_SHARE or queued <= DELAYED_SHARE:
            return
        gain = self._gain(kernel_us=np.zeros(len(self.lasting))) / (self.wall or np.nan)
        if gain < LEAST_GAIN:
            raise LabkitError(
                f"{rank.recording.file}: the GPU was busy for {busy:.0%} of the time and the host ahead of it, but the "
                f"replay without any kernel is only {gain:.0%} shorter. So the host waited in a way that does not show "
                "here, and this trace cannot predict the effect of a change."
            )

    def _without(self, kernels: pandas.Series) -> float:
        return self._gain(kernel_us=np.where(kernels, 0.0, self.lasting)) if kernels.any() else 0.0

    def _gain(self, host_us: np.ndarray | None = None, kernel_us: np.ndarray | None = None) -> float:
        """Microseconds of the wall time that are saved if host or kernels take these times in place of theirs."""
        host_us = self.host_us if host_us is None else host_us
        begin, end = self._play(host_us, self.lasting if kernel_us is None else kernel_us)
        return self.wall - (max(end) - min(begin))

    def _play(self, host_us: np.ndarray, kernel_us: np.ndarray) -> tuple[list[float], list[float]]:
        """Begins and ends of the kernels."""
        work = host_us.tolist(), kernel_us.tolist(), self.streams, self.found.after
        return run(*work, self.found.waits, *self.settings)[:2]
