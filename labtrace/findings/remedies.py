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
from labtrace.events.dialects import COMPUTE, fine_kinds
from labtrace.events.gaps import KERNEL_WAIT_US, LONG_DELAY_US
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank
from labtrace.findings import audit
from labtrace.findings.causes import COMMUNICATION, PAUSES, RANKS, advice
from labtrace.findings.program import Program
from labtrace.replay.launch_queue import play_unshared
from labtrace.replay.recorded_replay import queue_settings, replay_doubt, waits_for_ranks
from labtrace.tables.communication import is_pipeline
from labtrace.tables.dependencies import dependencies

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
        pipeline: whether the ranks are stages of a pipeline.
        mixed: whether communication contains the waiting for ranks that have no file.
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
        self.missing = audit.missing_ranks(ranks)
        self.pipeline = is_pipeline(ranks)
        self.mixed = self.missing > 0 and not self.pipeline
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
        found = advice(Program(self.rank, self.table, self.kinds))
        if self.pipeline:
            found[COMMUNICATION] = "more micro-batches or stages that take equally long; an interleaved schedule"
        elif self.mixed:
            found[COMMUNICATION] = "a recording of all ranks; this one does not tell sending from waiting for others"
        return found

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

    @property
    def best(self) -> float:
        """The largest share of the wall time that goes with one cause."""
        return max(self.gains.values()) / (self.wall or np.nan)

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
                f"{rank.recording.file}: the GPU was busy for {busy:.0%} of the time, but the replay without kernels "
                f"is only {gain:.0%} shorter: the host waited in a way that does not show. No change can be predicted."
            )

    def _without(self, kernels: pandas.Series) -> float:
        return self._gain(kernel_us=np.where(kernels, 0.0, self.lasting)) if kernels.any() else 0.0

    def together(self, cause: str, kind: str) -> float:
        """How many times faster it is without a cause on the host if kernels of a kind take half of their time, too."""
        kernel_us = self.lasting * np.where(self.kinds == kind, 0.5, 1)
        return self.wall / (self.wall - self._gain(self.host_us - self.parts[cause], kernel_us))

    def without_launches(self, launches: np.ndarray) -> float:
        """How many times faster it is if the host makes some launches no more, and their kernels do not run."""
        host_us, kernel_us = (np.where(launches, 0.0, us) for us in (self.host_us, self.lasting))
        return self.wall / (self.wall - self._gain(host_us, kernel_us))

    def faster(self, times: np.ndarray | pandas.Series) -> float:
        """How many times faster it is if each kernel is so many times as fast."""
        return self.wall / (self.wall - self._gain(kernel_us=self.lasting / np.asarray(times)))

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
