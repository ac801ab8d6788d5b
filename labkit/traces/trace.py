"""`Trace`: a recording as tables, right where Holistic Trace Analysis (HTA) misleads, and with what it leaves out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pandas

from labkit.errors import LabkitError, check_known
from labkit.traces import breakdowns, verdict
from labkit.traces import launches as launching
from labkit.traces.ranks import Rank
from labkit.traces.reading import read


class Trace:
    """A Kineto trace, as `labkit.record` or torch.profiler writes it, read through HTA.

    Every table is a `pandas.DataFrame` whose first column, `rank`, is the rank. Columns that end in `us` are
    microseconds, those that begin with `share` are between 0 and 1; what cannot be known is NaN. "Wall time" goes
    from the first to the last GPU activity; all recorded steps count, while HTA by default leaves out the last. What
    runs on the GPU is kernels, copies and memsets, all called kernels here unless they are told apart. Except for
    `operators` and `ranges`, the tables need a trace with one GPU a rank and raise `TraceError` on any other.

    Attributes:
        ranks: what was recorded, by rank; see `labkit.traces.ranks.Rank`.
        only_steps: the first and the last step, if it is a part that `steps` made; None for a whole recording.

    Args:
        path: a file ending in .json or .json.gz, or a folder of such files, one of each rank.

    Raises:
        TraceError: there is no trace, or it cannot be read; the message names the file, the cause and the remedy.
    """

    def __init__(self, path: Path | str) -> None:
        self.ranks = {number: Rank(recording) for number, recording in read(path).items()}
        self.only_steps: tuple[int, int] | None = None

    @property
    def stamp(self) -> dict | None:
        """What the trace (of several ranks, the first) was recorded on; None if labkit did not record it."""
        first = next(iter(self.ranks.values()))
        return first.recording.meta.get("labkit")

    def steps(self, first: int, last: int | None = None) -> Trace:
        """The steps from `first` to `last` alone, as a trace of which every table and figure can be made.

        They hold what the host began in these steps, and the kernels launched in them, whenever these ran. Left out is
        what lies outside of all steps, as do kernels whose launch is not in the trace; and what the GPU still had to
        do of earlier steps: nothing if `labkit.record` made the trace, as it waits for the GPU after each step, but
        elsewhere the GPU may seem idle at the begin. Times are still since the first event of the whole recording.

        Args:
            first: a step by its number, which `temporal(by="step")` and ProfilerStep's name show.
            last: another; None for `first` alone.

        Raises:
            LabkitError: the last comes before the first.
            TraceError: a step is not in the trace, or none is marked, or nothing was launched in them on the GPU.
        """
        last = first if last is None else last
        if last < first:
            raise LabkitError(f"first={first} comes after last={last}. Name the earlier step first.")
        part = copy.copy(self)
        part.ranks = {number: rank.within(first, last) for number, rank in self.ranks.items()}
        part.only_steps = first, last
        return part

    def temporal(self, by: str = "rank") -> pandas.DataFrame:
        """Busy and idle time of the whole device, all streams together.

        Columns: part; us; share_of_wall; share_of_busy, NaN for wall and idle. The parts are wall, busy and idle,
        which is what remains; and within busy compute, memory and communication, which may overlap each other and
        then add up to more. Mind which share is quoted: 93% of a busy time that is itself 10% of the wall time is not
        "compute-bound".

        Args:
            by: "rank" for these rows of each rank; "step" for these rows of each step, its number in the column
                `step`: from its first GPU activity to that of the next step, so that the steps add up to the whole
                but for what ran before them.

        Raises:
            TraceError: there is no GPU activity, or, by step, no step.
        """
        tables = {"rank": breakdowns.temporal, "step": breakdowns.temporal_by_step}
        check_known("by", by, tables)
        return self._table(tables[by])

    def idle(self) -> pandas.DataFrame:
        """Idle time by what the GPU waited for, of the whole device and of every stream.

        Columns: scope, "device" or "stream 7"; cause; us; share_of_idle and share_of_wall, of the scope: a stream's
        wall time goes from its own first to its own last activity. The device is idle when no stream is busy, so the
        streams' idle times add up to more than the device's. HTA gives the streams' only.

        The kernel that ends a gap tells the cause. host_wait: its launch had not begun when the gap did, so the host
        was late. kernel_wait: it was launched in time and the gap is shorter than 30 us, as between any two kernels.
        other: launched in time, the gap longer; it may wait for another stream. unknown: its launch is not in the
        trace.
        """
        return self._table(breakdowns.idle)

    def gaps(self, largest: int = 10) -> pandas.DataFrame:
        """The largest times at which no stream was busy, the largest first.

        Columns: begin_us, since the rank's first event; us; cause, as in `idle`; operator_at_begin and
        operator_at_end, the innermost operator or CUDA call that the host was in at these instants, "(none)" if in
        none; range_at_begin and range_at_end, labkit's range likewise; next_kernel, which ended the gap;
        launch_delay_us, from the end of that kernel's launch to its begin: short when the GPU waited for the host,
        long when the kernel waited; NaN if its launch is not in the trace.

        Args:
            largest: how many gaps of each rank.
        """
        return self._table(lambda rank: breakdowns.gaps(rank, largest))

    def kernels(self, by: str = "name") -> pandas.DataFrame:
        """What ran on the GPU, the most expensive first.

        Columns: kind, which is compute, memory or communication; name; count; total_us, mean_us: sum and mean of the
        durations; share_of_busy: of the device's busy time, together more than 1 where streams overlap.

        Args:
            by: "name" for a row of each name; "kind" for a row of each kind, without `name`; "memory" for a row of
                each memory operation, with `operation` (DtoD, HtoD, DtoH, Memset, ...) and `pageable`, whether the
                host's memory was not pinned, in place of `kind` and `name`.
        """
        tables = {
            "name": breakdowns.kernels_by_name,
            "kind": breakdowns.kernels_by_kind,
            "memory": breakdowns.memory_operations,
        }
        check_known("by", by, tables)
        return self._table(tables[by])

    def launches(self, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> pandas.DataFrame:
        """Which kernels' launches were slow or waited, by every call that launches: graphs and Triton's as well.

        Columns: what; kernels, how many; share_of_kernels; gpu_us, the sum of their durations; share_of_gpu_time, of
        the sum over all; share_of_wall, the part of the wall time in which at least one of them ran. The first three
        rows count among the kernels whose launch is in the trace, and are NaN if there is none; the last counts the
        others. A kernel may be in several rows.

        The rows: a delay longer than the cutoff, which is a full queue and no fault if the GPU is busy: see `queue`
        and `summary`; a call longer than the cutoff; a kernel shorter than its call, not counting those long calls,
        as HTA does, and with a graph's call shared among its kernels; no launch found.

        Args:
            runtime_cutoff: microseconds on the host in one call.
            delay_cutoff: microseconds from the end of the call to the begin of the kernel.
        """
        return self._table(lambda rank: launching.launches(rank, runtime_cutoff, delay_cutoff))

    def queue(self) -> pandas.DataFrame:
        """How many kernels were launched but not started, as a step function.

        Columns: time_us, since the rank's first event; waiting, from this time until that of the next row; mean, over
        the wall time, the same in all rows of a rank. A queue that is never empty keeps the GPU busy: long delays
        then mean that the host is ahead. Kernels without a launch in the trace are left out; `launches` counts them.

        Raises:
            TraceError: there is no GPU activity, or no launch in the trace.
        """
        return self._table(launching.queue)

    def concurrency(self) -> pandas.DataFrame:
        """How many streams were busy at once.

        Columns: range, "all" for the whole trace, or labkit's range in which the host launched the kernels;
        busy_streams, 0, 1, 2, ...; us, for how long so many were busy with kernels of this range; share_of_wall;
        union_us, the time at least one was busy; sum_us, the sum of the kernels' durations, the same two in all rows
        of a range. The wall time of a range goes from its first to its last kernel, summed over all times it was run.
        Kernels that overlap last longer, so compare the unions of two recordings, not the sums.
        """
        return self._table(launching.concurrency)

    def summary(self) -> pandas.DataFrame:
        """One row a rank: what bounds it, and the numbers that say so.

        Columns: bound_by; why, in words; wall_us; idle_of_wall, a share, as the following are; host_wait_of_idle;
        data_of_idle, while the host was in labkit's data range or in a DataLoader; compute_of_busy, memory_of_busy
        and communication_of_busy; long_delays_of_kernels, of those with a known launch, those that began over 100 us
        after it; mean_queue.

        bound_by: if the GPU was idle for more than half of the wall time, "data" or "host" if that covers more than
        half of the idle time, and else "unknown". Otherwise "compute", "memory" or "communication", whichever took
        most of the busy time. "memory" means copies and memsets. Whether a kernel is limited by arithmetic or by
        reading its memory, no trace tells: see `labkit.measure.roofline`.
        """
        return self._table(verdict.summary)

    def operators(self) -> pandas.DataFrame:
        """Time on the host by operator or CUDA call; also of a trace recorded on a CPU.

        Columns: name; kind, operator or CUDA call; count; self_us, the time in it but not in what it called;
        total_us, the time in it; share_of_self, of all self times. The most expensive first.
        """
        return self._table(breakdowns.operators)

    def ranges(self) -> pandas.DataFrame:
        """Time on the host in labkit's ranges, in their order; also of a trace recorded on a CPU.

        Columns: range; count; total_us; mean_us, of one; us_per_step, total_us over the number of recorded steps,
        NaN if none is marked. On a GPU this is the time to launch the range's work, not to do it.
        """
        return self._table(breakdowns.ranges)

    def _table(self, of_rank: Callable[[Rank], pandas.DataFrame]) -> pandas.DataFrame:
        tables = []
        for number, rank in self.ranks.items():
            table = of_rank(rank)
            table.insert(0, "rank", number)
            tables.append(table)
        return pandas.concat(tables, ignore_index=True)
