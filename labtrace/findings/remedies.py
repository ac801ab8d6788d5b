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

from labtrace.errors import LabError
from labtrace.events import host
from labtrace.events.dialects import COMPUTE, fine_kinds, matching
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank
from labtrace.findings import audit
from labtrace.replay.launch_queue import run
from labtrace.replay.recorded_replay import queue_settings, replay_doubt, waits_for_ranks
from labtrace.tables.dependencies import dependencies
from labtrace.tables.gpu import LONG_DELAY_US

RANKS = "waiting for other ranks"
# What to try: the first part of each, up to the semicolon, is the subject of a sentence.
TRY = {
    host.DATA: "more loader workers and pinned memory; prefetching, pictures decoded once; labkit: workers=",
    host.LAUNCHES: 'torch.compile, a CUDA graph or a larger batch; fewer, larger launches; labkit: "graph", "batched"',
    host.GRAPHS: "fewer and larger graphs and kernels, or a newer driver; torch.compile fuses kernels before capture, "
    "one graph can hold the whole step, and CUDA 12.6 launches graphs faster",
    host.START_UP: "nothing in training; leave the first steps out of the recording (the profiler's wait and warmup)",
    host.MEMORY: "an allocator that keeps its memory; no empty_cache(), the same shapes, pinned buffers made once, "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    host.WAITS: "a loop without .item(), print or copies to the host; pinned memory and non_blocking copies",
    host.OTHER: "moving this work into another process, or out of the loop; find it by name in Trace.gaps(): Python "
    "between the steps, operators on the CPU",
    "copies": "pinned memory and non_blocking copies; data that stay on the GPU, no .item() in the loop",
    "communication": "larger buckets or 16-bit gradients; a faster network, fewer exchanges",
    RANKS: "the same work for each rank; equal batches and pictures, find the slow rank's cause",
    "attention": "16 bits or shorter sequences; a sliding window, FlexAttention, which skips what is masked",
    "softmax": "scaled_dot_product_attention; one kernel that never writes the scores; of a loss, cross_entropy",
    "convolutions": '16 bits, TF32 or channels_last; cudnn.benchmark, lighter layers; labkit: "bf16", "channels_last"',
    "layout conversions": 'channels_last; pictures and weights with the channels last; labkit: "channels_last"',
    "matrix products": "16 bits or TF32; sizes that are multiples of 8 or 16",
    "normalisation": "torch.compile or channels_last; it is fused with its neighbours",
    "optimiser": 'one kernel for all weights; fused=True; labkit: "fused_adam"',
    "pointwise and other": "torch.compile or 16 bits; kernels are fused; work in place",
}
BEFORE_AMPERE = {  # such GPUs have neither TF32 nor bf16
    "convolutions": '16 bits or channels_last; cudnn.benchmark, lighter layers; labkit: "fp16", "channels_last"',
    "matrix products": "16 bits; sizes that are multiples of 8 or 16",
}
# 16 bits or fewer, in PyTorch's names, Tensile's (Cijk_..._BBS), cuBLAS's (nvjet_hsh, nvjet_tst), and of low precision.
# Flash attention has no others.
SIXTEEN = (
    r"(?i)bf16|fp16|f16|half|bfloat|Cijk_[a-z]+_[a-z]+_(?:[bh]|f8)|nvjet_(?:sm\d+_)?[htq]"
    r"|fp8|float8|e4m3|e5m2|fp4|flash|attn_[fb]wd|sage_fwd"
)
# What is left to try where most kernels of a kind compute in such numbers already, as their names say.
ALREADY = {
    r"tf32|s1688gemm": {
        "convolutions": '16 bits or channels_last; cudnn.benchmark, lighter layers; labkit: "bf16", "channels_last"',
        "matrix products": "16 bits; sizes that are multiples of 8 or 16",
    },
    SIXTEEN: {
        "attention": "shorter sequences; a sliding window, FlexAttention, which skips what is masked",
        "convolutions": 'channels_last; cudnn.benchmark, lighter layers; labkit: "channels_last"',
        "matrix products": "fewer or smaller products; sizes that are multiples of 8 or 16",
        "pointwise and other": "torch.compile; kernels are fused; work in place",
    },
}
START_UP_SHARE = 0.1  # of the recording: if more is start-up, all gains are those of the rest
# The rule of `Remedies._check_waits`: the host was ahead if the GPU was busy for more than this share of the time, and
# more than this share of the kernels had a long delay. Stretches without calls may be waits if they took this share.
BUSY_SHARE, DELAYED_SHARE, LEAST_SILENCE = 0.8, 0.5, 0.1


class Remedies:
    """A rank's recording, played again without one cause after another. Each replay is played once.

    Args:
        rank: the recording.
        ranks: all ranks of the training, this one too.

    Attributes:
        doubt: the faults of the recording or its replay, in a sentence or two, or "" if there are none.
        off: the share of the wall time by which the unchanged replay differs from the recording.
        start_up: the share of the recording in which the GPU waited for the start-up, 0 if it is below
            `START_UP_SHARE`. If not, `wall`, `gains`, `idle` and `waits` are those of the rest.
        wall: of the replay, in microseconds.
        idle: the share of the recorded wall time in which the GPU was idle.
        waits: by the causes of `labtrace.events.host`, the share of the idle time in which the host worked on them.

    Raises:
        TraceError, LabError: as `labtrace.Trace.remedies`.
    """

    def __init__(self, rank: Rank, ranks: Collection[Rank]) -> None:
        unsound, too_much = audit.doubts(rank)
        if too_much:
            raise LabError(f"{unsound} So it cannot predict the effect of a change. Record again.")
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
        self.before_ampere = rank.recording.before_ampere
        if self.waited is not None and (missing := audit.missing_ranks(ranks)):
            said.append(f"{missing} of {len(ranks) + missing} ranks have no file here: the waits for them are unknown.")
        self.doubt = " ".join(filter(None, said))
        self._check_waits(rank)
        self.off = abs(self.wall / (rank.stop - rank.start) - 1)
        self._leave_start_up_out(rank, free, made)

    def _leave_start_up_out(self, rank: Rank, free: np.ndarray, made: np.ndarray) -> None:
        recorded, gaps = rank.stop - rank.start, Union(*rank.busy.gaps())
        idle_us = gaps.length
        idle_part = gaps.covered(free, made) / np.where(made > free, made - free, np.inf)
        waits = {cause: float(np.sum(us * idle_part)) for cause, us in self.parts.items()}
        self.start_up = waits[host.START_UP] / recorded
        if self.start_up < START_UP_SHARE:
            self.start_up = 0.0
        else:
            self.start_up_us = self._gain(host_us=self.host_us - self.parts[host.START_UP])
            self.host_us = self.host_us - self.parts.pop(host.START_UP)
            self.wall -= self.start_up_us
            us = waits.pop(host.START_UP)
            recorded, idle_us = recorded - us, idle_us - us
        self.idle = idle_us / (recorded or np.nan)
        self.waits = {cause: us / (idle_us or np.nan) for cause, us in waits.items()}

    @cached_property
    def kinds(self) -> pandas.Series:
        """What each kernel does, as `fine_kinds`."""
        return fine_kinds(self.table)

    @property
    def shares(self) -> pandas.Series:
        """The share of the kernels' time by kind."""
        return self.table.groupby(self.kinds)["duration"].sum() / (self.table["duration"].sum() or np.nan)

    @cached_property
    def advice(self) -> dict[str, str]:
        """What to try, by cause."""
        advice = TRY | (BEFORE_AMPERE if self.before_ampere else {})
        for pattern, left in ALREADY.items():
            us = self.table["duration"].where(matching(self.table["name"], pattern), 0.0).groupby(self.kinds).sum()
            most = us > self.table.groupby(self.kinds)["duration"].sum() / 2
            advice |= {kind: text for kind, text in left.items() if most.get(kind)}
        return advice

    @cached_property
    def gains(self) -> dict[str, float]:
        """Microseconds of the wall time that are gained without each cause."""
        kinds = self.kinds
        gains = {cause: self._gain(host_us=self.host_us - us) for cause, us in self.parts.items() if us.any()}
        gains |= {host.LAUNCHES: gains.get(host.LAUNCHES, 0.0)}
        gains |= {kind: self._without(kinds == kind) for kind in kinds.unique()}
        if self.waited is not None:  # what communication costs is the rest
            gains["communication"] = self._gain(kernel_us=np.where(kinds == "communication", self.waited, self.lasting))
            gains[RANKS] = self._gain(kernel_us=self.lasting - self.waited)
        return gains

    @cached_property
    def halves(self) -> dict[str, float]:
        """How many times faster the training is if each kind of `COMPUTE` takes half of its time."""
        kinds = [kind for kind in COMPUTE if kind in self.gains]
        gains = {kind: self._gain(kernel_us=self.lasting * np.where(self.kinds == kind, 0.5, 1)) for kind in kinds}
        return {kind: self.wall / (self.wall - gain) for kind, gain in gains.items()}

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
        table["times_faster_at_half"] = table["cause"].map(self.halves)
        table = table.sort_values("us", ascending=False, kind="stable", ignore_index=True)
        if self.start_up:
            whole = self.wall + self.start_up_us
            table.loc[len(table)] = host.START_UP, self.start_up_us, self.start_up_us / whole, whole / self.wall, np.nan
        return table.assign(**{"try": table["cause"].map(self.advice)})

    def _check_waits(self, rank: Rank) -> None:
        """Raises `LabError` if the host was ahead of the GPU, but the replay without kernels is hardly shorter.

        The host was ahead where the GPU was busy and most kernels waited long in the queue. Then it must have waited
        for the GPU, or worked for just as long. If the stretches in which it made no call cost more than all kernels
        do, they were waits: in a loop that reads the GPU's memory, for instance.
        """
        queued = (rank.kernels["delay"] > LONG_DELAY_US).sum() / max(1, rank.kernels["delay"].notna().sum())
        busy = rank.busy.length / (rank.stop - rank.start)
        silent = self.parts[host.OTHER].sum() / (self.wall or np.nan)
        if busy <= BUSY_SHARE or queued <= DELAYED_SHARE or not silent >= LEAST_SILENCE:
            return
        gain = self._gain(kernel_us=np.zeros(len(self.lasting))) / (self.wall or np.nan)
        if gain < silent:
            raise LabError(
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
