"""The most that a recorded step could gain if one cause of its time were gone: the trace, played again without it.

Shares of idle or busy time do not answer this, since one cause can hide another one. So each cause is taken out by
itself, the rest stays as recorded, and the wall times are compared. Causes that overlap are therefore not counted
twice, and the gains of two of them cannot be added up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
import pandas

from labtrace.errors import LabError
from labtrace.events import host
from labtrace.events.dialects import COMPUTE, fine_kinds, matching
from labtrace.events.gaps import KERNEL_WAIT_US, LONG_DELAY_US
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank
from labtrace.findings import audit
from labtrace.findings.evidence import Slower
from labtrace.replay.launch_queue import play_unshared
from labtrace.replay.recorded_replay import queue_settings, replay_doubt, waits_for_ranks
from labtrace.tables.achieved import PRODUCTS, TF32, achieved
from labtrace.tables.dependencies import dependencies

RANKS, PAUSES = "waiting for other ranks", "pauses between kernels"
# What to try: the first part of each, up to the semicolon, is the subject of a sentence.
TRY = {
    host.DATA: "more loader workers and pinned memory; prefetching, pictures decoded once; labkit: workers=",
    host.LAUNCHES: 'torch.compile, a CUDA graph or a larger batch; fewer, larger launches; labkit: "graph", "batched"',
    host.GRAPHS: "fewer and larger graphs and kernels, or a newer driver; torch.compile fuses kernels before capture, "
    "one graph can hold the whole step, and CUDA 12.6 launches graphs faster",
    host.START_UP: "nothing in training; leave the first steps out of the recording (the profiler's wait and warmup)",
    host.COMPILING: "compiling once; TORCH_LOGS=recompiles tells why, equal shapes or torch._dynamo.mark_dynamic help",
    host.BLOCKED: "launches that do not block; another thread or program may hold the driver, or modules come late: "
    "CUDA_MODULE_LOADING=EAGER, all shapes in the warm-up",
    host.MEMORY: "an allocator that keeps its memory; no empty_cache(), the same shapes, pinned buffers made once, "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    host.WAITS: "a loop without .item(), print or copies to the host; pinned memory and non_blocking copies",
    host.OTHER: "moving this work into another process, or out of the loop; Trace.gaps() has names, and more if the "
    "profiler records with_stack=True; gc.freeze() if it is Python's garbage collection",
    PAUSES: "fewer and larger kernels; torch.compile fuses them, larger batches; each kernel of a graph has its pause",
    "copies": "pinned memory and non_blocking copies; data that stay on the GPU, no .item() in the loop",
    "communication": "larger buckets or 16-bit gradients; a faster network, fewer exchanges",
    RANKS: "the same work for each rank; equal batches and pictures, find the slow rank's cause",
    "softmax": "scaled_dot_product_attention; one kernel that never writes the scores; of a loss, cross_entropy",
    "optimiser": 'one kernel for all weights; fused=True; labkit: "fused_adam"',
}
# Kernels in 16 bits or fewer, by PyTorch's names, Tensile's (Cijk_..._BBS) and cuBLAS's (nvjet_hsh, nvjet_tst).
# Flash attention has no others.
SIXTEEN = (
    r"(?i)bf16|fp16|f16|half|bfloat|Cijk_[a-z]+_[a-z]+_(?:[bh]|f8)|nvjet_(?:sm\d+_)?[htq]"
    r"|fp8|float8|e4m3|e5m2|fp4|flash|attn_[fb]wd|sage_fwd"
)
# With these layers channels_last alone copies more than it saves: they know the channels first only.
CHANNELS_FIRST = r"(?i)reflection_pad|instance_norm"
ON_GPU = r"DtoD|D2D|DeviceToDevice"
# Products of weights that compute less for each byte wait for their weights on any GPU: in 16 bits, and in 32.
WEIGHTS, FEW_FLOPS = r"^aten::(?:add)?mm$", {"bfloat16": 50.0, "float16": 50.0, "float32": 15.0}
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
        self.rank, self.found = rank, dependencies(rank)
        self.settings = queue_settings(self.found)
        self.table = self.found.kernels
        self.lasting, self.streams = self.table["duration"].to_numpy(), self.table["stream"].tolist()
        free, made = self.found.host_times()
        self.parts = host.divide(rank, free, made, self.table[self.found.copies])
        self.ready = self._ready()
        self.host_us = np.sum([*self.parts.values()], axis=0)
        begin, end = self._play(self.host_us, self.lasting)
        self.wall = max(end) - min(begin)
        doubts = [unsound, replay_doubt(rank, np.array(begin), np.array(end))]
        self.waited = waits_for_ranks(rank, ranks)
        self.before_ampere = rank.recording.before_ampere
        self.missing = audit.missing_ranks(ranks)
        if self.waited is not None and self.missing:
            all_ranks = len(ranks) + self.missing
            doubts.append(f"{self.missing} of {all_ranks} ranks have no file here: the waits for them are unknown.")
        self.doubt = " ".join(filter(None, doubts))
        self._check_waits(rank)
        self.off = abs(self.wall / (rank.stop - rank.start) - 1)
        self._leave_start_up_out(rank, free, made)

    @cached_property
    def measuring(self) -> dict[int, tuple[int, ...]]:
        """The waits after each step that `labkit.record` adds, to measure it."""
        last = self.table.index[~self.table["step"].duplicated(keep="last")]
        ours = last if "steps" in (self.rank.recording.stamp or {}) else last[:0]
        return {place: self.found.waits[place] for place in ours.intersection(list(self.found.waits))}

    def _ready(self) -> dict[int, float]:
        """By stream when work of before the recording had ended, in time of the replay: its first kernel waited."""
        first = self.table.drop_duplicates("stream")
        alone = np.array([not self.found.after[place] for place in first.index])
        waited = first["begin"] > self.found.made[first.index] + KERNEL_WAIT_US
        waited = first[waited & alone & (first["call_begin"] <= self.table["begin"].min())]
        return dict(zip(waited["stream"], waited["begin"] - self.table["call_begin"][0], strict=True))

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
        bits = {kind: self._fewer_bits(kind) for kind in COMPUTE}
        names = pandas.concat([self.rank.operators["name"], self.table["name"]])
        first = matching(names, CHANNELS_FIRST).any()
        layout = [] if first else ["channels_last"]
        why = "channels_last copies at instance norm and reflection padding, unless compiled; " if first else ""
        half = "fp16" if self.before_ampere else "bf16"
        products = _either(bits["matrix products"] or ["8-bit numbers", "fewer and smaller products"])
        products += "; sizes that are multiples of 8 or 16"
        if self._reads_weights():
            products = "a larger batch or weights of 8 or 4 bits; these products read much and compute little"
        advice = {
            "attention": f"{_either([*bits['attention'][:1], 'shorter sequences'])}; a sliding window, FlexAttention, "
            "which skips what is masked",
            "convolutions": f"{_either([*bits['convolutions'], *layout] or ['lighter layers'])}; {why}cudnn.benchmark, "
            f'lighter layers; labkit: "{half}", "nhwc"',
            "layout conversions": f"{_either(layout or ['torch.compile'])}; {why}pictures and weights in one "
            'layout; labkit: "nhwc"',
            "matrix products": products,
            "normalisation": f"{_either(['torch.compile', *layout])}; {why}it is fused with its neighbours",
            "pointwise and other": f"{_either(['torch.compile', *bits['pointwise and other'][:1]])}; kernels are "
            "fused; work in place",
        }
        if self._mostly("copies", ON_GPU):
            advice["copies"] = "no in-place operations on views; for them autograd copies whole tensors, as clone() "
            advice["copies"] += 'and contiguous() do; labkit: "out_of_place"'
        if self.missing:
            advice["communication"] = "a recording of all ranks; this one does not tell sending from waiting for others"
        return TRY | advice

    def _mostly(self, kind: str, pattern: str) -> bool:
        """Whether kernels whose names fit took over half of the time of this kind."""
        ours = self.table[self.kinds == kind]
        return bool(ours["duration"][matching(ours["name"], pattern)].sum() > ours["duration"].sum() / 2)

    def _fewer_bits(self, kind: str) -> list[str]:
        """The shorter numbers that most kernels of this kind do not compute in yet."""
        if self._mostly(kind, SIXTEEN):
            return []
        return ["16 bits"] if self._mostly(kind, TF32) or self.before_ampere else ["16 bits", "TF32"]

    def _reads_weights(self) -> bool:
        """Whether most of the products compute little for each byte, as far as the recording has their shapes."""
        try:
            table = achieved(self.rank)
        except LabError:
            return False
        ours = table[matching(table["name"], WEIGHTS)]
        few = ours["flops"] < ours["dtype"].map(FEW_FLOPS) * ours["bytes"]
        return bool(ours["us"][few].sum() > table["us"][table["name"].isin(PRODUCTS)].sum() / 2)

    @cached_property
    def gains(self) -> dict[str, float]:
        """Microseconds of the wall time that are gained without each cause."""
        kinds = self.kinds
        parts = {cause: us for cause, us in self.parts.items() if us.any() and cause != host.WAITS}
        gains = {cause: self._gain(host_us=self.host_us - us) for cause, us in parts.items()}
        gains |= {host.LAUNCHES: gains.get(host.LAUNCHES, 0.0)}
        if self.found.waits.keys() - self.measuring.keys():  # what they prevent counts: that the host is ahead
            gains[host.WAITS] = self._gain(host_us=self.host_us - self.parts[host.WAITS], waits=False)
        if self.settings[1]:
            gains[PAUSES] = self._gain(pauses=False)
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

    def together(self, cause: str, kind: str) -> float:
        """How many times faster it is without a cause on the host if kernels of a kind take half of their time, too."""
        kernel_us = self.lasting * np.where(self.kinds == kind, 0.5, 1)
        return self.wall / (self.wall - self._gain(self.host_us - self.parts[cause], kernel_us))

    def at_half(self, kernel: str) -> float:
        """How many times faster it is if the kernels of this name take half of their time."""
        ours = self.table["name"] == kernel
        return self.wall / (self.wall - self._gain(kernel_us=self.lasting * np.where(ours, 0.5, 1)))

    def at_first_speed(self, slower: Slower) -> float:
        """How many times faster it is if kernels after a slow-down take as long as before."""
        late = self.table["step"] >= slower.step
        return self.wall / (self.wall - self._gain(kernel_us=self.lasting / np.where(late, slower.ratio, 1)))

    def _gain(
        self,
        host_us: np.ndarray | None = None,
        kernel_us: np.ndarray | None = None,
        waits: bool = True,
        pauses: bool = True,
    ) -> float:
        """Microseconds of the wall time that are saved if host or kernels take these times in place of theirs.

        Args:
            host_us, kernel_us: of each launch, None for those of the recording.
            waits, pauses: whether the host waits as in the recording, and a stream pauses between kernels.
        """
        host_us = self.host_us if host_us is None else host_us
        begin, end = self._play(host_us, self.lasting if kernel_us is None else kernel_us, waits, pauses)
        return self.wall - (max(end) - min(begin))

    def _play(
        self, host_us: np.ndarray, kernel_us: np.ndarray, waits: bool = True, pauses: bool = True
    ) -> tuple[list[float], list[float]]:
        """Begins and ends of the kernels."""
        work = host_us.tolist(), kernel_us.tolist(), self.streams, self.found.after
        kept, (limit, pause) = self.found.waits if waits else self.measuring, self.settings
        return play_unshared(*work, kept, limit, pause if pauses else 0.0, self.ready)[:2]


def _either(options: Sequence[str]) -> str:
    """ "a, b or c"."""
    return f"{', '.join(options[:-1])} or {options[-1]}" if len(options) > 1 else options[0]
