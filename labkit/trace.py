"""`Trace`: a recording as tables: those of Holistic Trace Analysis (HTA), corrected where they mislead, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas

from labkit.errors import LabkitError, check_known
from labkit.traces import audit, communication, critical_path, difference, operators, tables, verdict
from labkit.traces.rank import Rank
from labkit.traces.reading import TraceError
from labkit.traces.recorded import Recorded, stamped

if TYPE_CHECKING:
    from labkit.simulate.cost_model import Roofline
    from labkit.simulate.remedies import Remedies


class Trace(Recorded):
    """A Kineto trace, as `labkit.record` or torch.profiler writes it.

    Every table is a `pandas.DataFrame` whose first column, `rank`, is the rank. Columns that end in `us` are
    microseconds, columns that begin with `share` are between 0 and 1, and a value that cannot be known is NaN. "Wall
    time" goes from the first to the last GPU activity. All recorded steps count, while HTA by default leaves out the
    last. "Kernels" include copies and memsets unless a table lists these separately. Except for `communication`,
    `operators` and `ranges`, the tables need a trace with one GPU a rank and raise `TraceError` on any other.

    ``attrs["stamp"]`` of a table is the stamp of the recording. If that was simulated, "SIMULATED" also stands in the
    corner of the table, as the name of its columns.

    Attributes:
        ranks: the events of each rank; see `labkit.traces.rank.Rank`.
        only_steps: the first and the last step, if `steps` made this trace; None for a whole recording.

    Args:
        path: a file ending in .json or .json.gz, or a folder of such files, one of each rank.

    Raises:
        TraceError: there is no trace, or it cannot be read; the message names the file, the cause and the remedy.
    """

    def temporal(self, by: str = "rank") -> pandas.DataFrame:
        """Busy and idle time of the whole device, all streams together.

        Columns: part; us; share_of_wall; share_of_busy, NaN for wall and idle. The parts are wall = busy + idle, and
        within busy compute, memory and communication, which may overlap and then add up to more. Take care which
        share is quoted: 93% of a busy time that is only 10% of the wall time is not "compute-bound".

        Args:
            by: "rank" for these rows of each rank; "step" for these rows of each step, with its number in the column
                `step`. A step lasts from its first GPU activity to the first of the next step, so the steps add up to
                the whole except for kernels that ran before them.

        Raises:
            TraceError: there is no GPU activity, or, by step, no step.
        """
        table_of = {"rank": tables.temporal, "step": tables.temporal_by_step}
        check_known("by", by, table_of)
        return self._table(table_of[by])

    def idle(self) -> pandas.DataFrame:
        """Idle time by its cause, of the whole device and of every stream.

        Columns: scope, "device" or "stream 7"; cause; us; share_of_idle and share_of_wall, of the scope: a stream's
        wall time goes from its own first to its own last activity. The device is idle when no stream is busy, so the
        idle times of the streams add up to more than the device's. HTA knows only those of the streams.

        The kernel that ends a gap tells the cause. host_wait: its launch began after the gap did, so the host was
        late. kernel_wait: it was launched in time and the gap is shorter than 30 us, as between any two kernels.
        other: it was launched in time and the gap is longer, for example because it waited for another stream.
        unknown: its launch is not in the trace.
        """
        return self._table(tables.idle)

    def gaps(self, largest: int = 10) -> pandas.DataFrame:
        """The largest gaps in which no stream was busy, the largest first.

        Columns: begin_us, since the rank's first event; us; cause, as in `idle`; operator_at_begin and
        operator_at_end, the innermost operator or CUDA call on the host at these instants, or "(none)"; range_at_begin
        and range_at_end, the innermost range at these instants, or "(none)"; next_kernel, which ended the gap;
        launch_delay_us, from the end of that kernel's launch to its begin: short when the GPU waited for the host,
        long when the kernel waited; NaN if its launch is not in the trace.

        Args:
            largest: how many gaps of each rank.
        """
        return self._table(lambda rank: tables.gaps(rank, largest))

    def kernels(self, by: str = "name") -> pandas.DataFrame:
        """The kernels, the most expensive first.

        Columns: kind, which is compute, memory or communication; name; count; total_us and mean_us, sum and mean of the
        durations; share_of_busy, of the device's busy time: the shares add up to more than 1 where streams overlap.

        Args:
            by: "name" for a row of each name; "kind" for a row of each kind, without `name`; "memory" for a row of
                each memory operation, with `operation` (DtoD, HtoD, DtoH, Memset, ...) and `pageable`, whether the
                host's memory was not pinned, in place of `kind` and `name`.
        """
        table_of = {
            "name": tables.kernels_by_name,
            "kind": tables.kernels_by_kind,
            "memory": tables.memory_operations,
        }
        check_known("by", by, table_of)
        return self._table(table_of[by])

    def launches(self, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> pandas.DataFrame:
        """How many kernels were launched slowly or had to wait, whichever call launched them: graphs and Triton too.

        Columns: what; kernels, how many; share_of_kernels; gpu_us, the sum of their durations; share_of_gpu_time, of
        the sum over all; share_of_wall, the part of the wall time in which at least one of them ran. The first three
        rows look at the kernels whose launch is in the trace, and are NaN if there are none; the last row counts the
        other kernels. A kernel may be in several rows.

        The rows: a delay longer than the cutoff, which on a busy GPU is a full queue and no fault: see `queue` and
        `summary`; a call longer than the cutoff; a kernel shorter than its call, where a graph's call is shared among
        its kernels and, as in HTA, long calls do not count; no launch found.

        Args:
            runtime_cutoff: microseconds on the host in one call.
            delay_cutoff: microseconds from the end of the call to the begin of the kernel.
        """
        return self._table(lambda rank: tables.launches(rank, runtime_cutoff, delay_cutoff))

    def queue(self) -> pandas.DataFrame:
        """How many kernels were launched but not started, as a step function.

        Columns: time_us, since the rank's first event; waiting, from this time until that of the next row; mean, over
        the wall time, the same in all rows of a rank. A queue that is never empty keeps the GPU busy: long delays
        then mean that the host is ahead. Kernels without a launch in the trace are left out; `launches` counts them.

        Raises:
            TraceError: there is no GPU activity, or no launch in the trace.
        """
        return self._table(tables.queue)

    def concurrency(self) -> pandas.DataFrame:
        """How many streams were busy at the same time.

        Columns: range, "all" for the whole trace, or the range in which the host launched the kernels;
        busy_streams, 0, 1, 2, ...; us, how long that many streams were busy with kernels of this range;
        share_of_wall; union_us, the time in which at least one stream was busy; sum_us, the sum of the kernels'
        durations. The last two are the same in all rows of a range. The wall time of a range goes from its first to
        its last kernel, summed over all runs of the range. Kernels that overlap last longer, so compare the unions of
        two recordings, not the sums.
        """
        return self._table(tables.concurrency)

    def summary(self) -> pandas.DataFrame:
        """One row a rank: its first remedy, what bounds it if one cause dominates, and the numbers.

        Columns: bound_by; first_remedy and times_faster_at_most, the first row of `remedies`; why, in words; wall_us;
        then shares: idle_of_wall; host_wait_of_idle; data_of_idle, while the host was in labkit's data range or in a
        DataLoader; compute_of_busy, memory_of_busy and communication_of_busy; long_delays_of_kernels, the kernels with
        a known launch that began over 100 us after it; mean_queue; and cost_of_data, cost_of_host, cost_of_compute,
        cost_of_memory and cost_of_communication, the parts of the wall time that would be gone without the loading of
        data, without all other work of the host, and without each kind of kernel: SIMULATED, as in `remedies`.

        bound_by: the part with the largest cost, if that is at least a tenth and at least twice the next cost. Else
        "several": the parts hide behind each other, or more than one has to get faster. "unknown" if the trace cannot
        be played again. "memory" means copies and memsets: whether arithmetic or memory limits a kernel, only a
        trace with shapes tells: see `achieved`.

        Raises:
            TraceError: there is no GPU activity.
        """

        def of_rank(rank: Rank) -> pandas.DataFrame:
            try:
                played = self._remedies(rank)
            except TraceError:
                raise
            except LabkitError as error:  # it cannot be played again
                return verdict.summary(rank, None, {}, str(error))
            return verdict.summary(rank, played.rows(), played.costs, played.doubt)

        return self._table(of_rank)

    def communication(self) -> pandas.DataFrame:
        """One row a rank: the time of its communication with other ranks, and how much of it was exposed.

        Works for a trace that was recorded on a CPU with gloo, too. There the wall time is that of the recorded steps,
        and PyTorch's operators take the place of the kernels; Python's own time between two operators does not count
        as work.

        Columns: wall_us; compute_us, with any kernel, copy or memset under way that is no communication;
        communication_us, with the wait for the last rank to join; of it hidden_us, while something else was under way,
        and exposed_us, with nothing else; share_of_wall, exposed_us over wall_us; waited_us, how much longer than the
        fastest rank this one was in the collectives; straggler, the rank that the others waited for: it waited least.

        The last two are NaN if there is only one rank, if ranks differ in the number of their collectives, or if all
        waited equally. Communication is NaN if the trace is of one of several ranks, and none was found in it.
        """
        table = self._table(communication.communication)
        waited = pandas.Series(communication.waited_us(self.ranks))
        table["waited_us"] = table["rank"].map(waited)
        missing = audit.missing_ranks(self.ranks.values())
        table["straggler"] = waited.idxmin() if waited.nunique() > 1 and not missing else np.nan
        table["ranks"] = f"{len(self.ranks)} of {len(self.ranks) + missing}"
        return table

    def operators(self) -> pandas.DataFrame:
        """Time on the host by operator or CUDA call. Works for a trace recorded on a CPU, too.

        Columns: name; kind, operator or CUDA call; count; self_us, the time in it without the operators that it
        called; total_us, with them; share_of_self, of the sum of all self times; gpu_self_us, the durations of the
        kernels, copies and memsets that it launched itself, whenever these ran, and gpu_total_us, with those of the
        operators that it called. The last two are NaN if no launch of any kernel is in the trace. The most expensive on
        the host come first.
        """
        return self._table(operators.operators)

    def ranges(self) -> pandas.DataFrame:
        """Time on the host in ranges, in their order. Works for a trace recorded on a CPU, too.

        The ranges are labkit's, without "labkit: ", and those of your own (`torch.profiler.record_function`). In a
        trace without labkit's they are also those that PyTorch marks: of the DataLoader, the optimiser and collectives.

        Columns: range; count; total_us; mean_us; us_per_step, total_us over the number of recorded steps, NaN if no
        step is marked. On a GPU this is the time to launch the range's work, not to do it.
        """
        return self._table(tables.ranges)

    def audit(self) -> pandas.DataFrame:
        """What is wrong with the recording, one row a finding; no row if nothing was found. Works on any trace.

        Columns: what; events, how many; example, the name of one of them or, of the profiler's own warnings, the text;
        tables, those that cannot be trusted for it.

        The findings: events left out in reading (without a category, a begin without its end); launches whose kernel is
        missing, at the end of a recording or because the profiler dropped it; kernels whose launch is missing; kernels
        that begin before their launch, as after a step of one of the clocks; correlations that several calls have, or
        several kernels of a call that launches one; kernels that overlap on one stream; calls of one thread that
        overlap without one being inside of the other; times in whole microseconds with kernels of no duration; and
        warnings that the profiler wrote into the file. What would make every table wrong is refused in reading instead,
        such as host and GPU in different units.
        """
        return self._table(lambda rank: audit.audit(rank, self.ranks.values()))

    def remedies(self) -> pandas.DataFrame:
        """The causes of the wall time, and how many times faster the trace would be at most without each: SIMULATED.

        Columns: cause; us, the wall time that it costs; share_of_wall; times_faster_at_most; try, in words. The largest
        come first. Each cause is taken out by itself, and the trace is played again: see `labkit.simulate.remedies`.
        So a kernel that is hidden behind others costs nothing, and gains cannot be added up.

        The causes: data loading, in labkit's range or the DataLoader's; launches, all other work of the host; copies;
        communication; waiting for other ranks, in a folder of several; kinds of compute kernels, by their names; and,
        with a roofline, kernels that the memory limits, of whichever kind, as far as `achieved` knows their shapes.

        Args:
            roofline: of the recorded device, as for `achieved`.

        Raises:
            TraceError: there is no GPU activity.
            LabkitError: no launch is in the trace, or an unchanged replay differs from it by more than a fifth.

        Warns:
            ReplayWarning: it differs by more than a twentieth.
        """
        from labkit.simulate.recorded_replay import warn_of

        table = self._table(lambda rank: self._remedies(rank).rows())
        warn_of(" ".join(dict.fromkeys(filter(None, (self._remedies(rank).doubt for rank in self.ranks.values())))))
        return stamped(table, {**(self.stamp or {}), "SIMULATED": True})

    def _remedies(self, rank: Rank) -> Remedies:
        """The replays of a rank, which `summary` and `remedies` share."""
        from labkit.simulate.remedies import Remedies

        if rank not in self._played:
            self._played[rank] = Remedies(rank, self.ranks.values())
        return self._played[rank]

    def critical_path(self, by: str = "kind") -> pandas.DataFrame:
        """The chain of events that determines the wall time, through host and GPU: its rows add up to the wall time.

        Making work beside this path faster gains nothing; on it, at most its time here, since another chain may be
        almost as long. See `labkit.traces.critical_path`.

        Columns: where, "host", "GPU", or "between"; what: on the host "data loading", or the innermost range; on the
        GPU the kind of kernel, as in `remedies`; between them "launch latency" (from a launch to its kernel), "pause
        between kernels", or "unknown wait", a pause of more than 30 us, or before kernels whose launch is not in the
        trace; us; share_of_wall; events, how many parts of the path. The largest come first.

        Args:
            by: "kind" for these rows; "name" for a row of each kernel's name and each of the host's operators, with
                `name`; "segment" for the parts of the path in their order, with `name` and begin_us.

        Raises:
            TraceError: there is no GPU activity.
            LabkitError: no launch is in the trace.
        """
        check_known("by", by, critical_path.TABLES)
        return self._table(critical_path.TABLES[by])

    def diff(self, other: Trace, by: str = "kernel") -> pandas.DataFrame:
        """Another trace against this one, step by step: what appeared, vanished, or takes longer, the largest first.

        Rank by rank, or the only rank of each. If PyTorch's version or the GPU differs, so do most kernels' names, and
        by="operator" tells more.

        Columns: name; of kernels operator, which launched most of them; count and us, of this trace; count_other and
        us_other; difference_us, of the other trace beyond this one; change. Counts and times are of the whole trace
        over its steps, or plain sums if neither has steps. If one kernel vanished under an operator and another
        appeared, a library chose another algorithm for the same work.
        change: "appeared" or "vanished" if the name is in one trace alone; else "more often" or "less often" if the
        counts differ by more than 5 %; else "slower" or "faster" if the means do; else "same".

        Args:
            other: for example the same training after a change.
            by: "kernel"; "operator" for the GPU time of what each launched itself, without what no operator launched,
                such as graphs; "host" for the host's own time in each operator and call, which works on a CPU, too.

        Raises:
            TraceError: no rank is in both, only one has steps, or there is no GPU activity and by is not "host".
        """
        check_known("by", by, ("kernel", "operator", "host"))
        return stamped(difference.differences(self.ranks, other.ranks, by), self.stamp, other.stamp)

    def achieved(self, roofline: Roofline | None = None) -> pandas.DataFrame:
        """The rates that convolutions, matrix products and normalisation achieved, by operator and shapes.

        Columns: name; inputs, the shapes; dtype; count; us, on the GPU, of all; flops and bytes, the least of one call;
        tflop_per_s and gb_per_s; and with a roofline share_of_peak, of the lower of its two roofs, and limit, which
        roof that is: "compute" or "memory". NaN is what the trace does not tell: see `labkit.traces.achieved`.

        Args:
            roofline: of the recorded device, for example `labkit.simulate.ROOFLINES["A100"]`; its peaks count in full.
                Mind the types: the peak of float32 is that of TF32 where the device has it.

        Raises:
            TraceError: there is no GPU activity, or the trace was recorded without record_shapes=True.
        """
        from labkit.traces.achieved import achieved

        return self._table(lambda rank: achieved(rank, roofline))
