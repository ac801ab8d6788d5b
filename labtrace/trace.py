"""`Trace`: a recording as tables: those of Holistic Trace Analysis (HTA), corrected where they mislead, and more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pandas

from labtrace.errors import ByRank, LabError, check_known
from labtrace.events.rank import Rank, ranks_of
from labtrace.events.reading import read
from labtrace.events.twins import named_by
from labtrace.findings import audit, difference, verdict
from labtrace.findings.remedies import Remedies
from labtrace.findings.window import window
from labtrace.replay.recorded_replay import replay_rank, warn_of
from labtrace.replay.trace_file import Replay
from labtrace.stamp import with_stamp
from labtrace.tables import achieved, communication, gpu, launchers, operators, processor


class Trace:
    """A Kineto trace, as torch.profiler or `labkit.record` writes it.

    Every table is a `pandas.DataFrame` whose first column, `rank`, is the rank. Columns that end in `us` are
    microseconds, columns that begin with `share` are between 0 and 1, and a value that cannot be known is NaN. "Wall
    time" goes from the first to the last GPU activity. All recorded steps count, while HTA by default leaves out the
    last. "Kernels" include copies and memsets unless a table lists these separately. Except for `communication`,
    `operators` and `ranges`, the tables need a trace with a GPU and raise `TraceError` on any other. If a process used
    several GPUs, as with `torch.nn.DataParallel`, each of them is a rank, numbered in their order.

    ``attrs["stamp"]`` of a table is the stamp of the recording. If that was simulated, "SIMULATED" is also in the
    corner of the table, as the name of its columns.

    Attributes:
        ranks: the events of each rank, as a `labtrace.events.rank.Rank`.
        only_steps: the first and the last step if `steps` made this trace, or None for a whole recording.

    Args:
        path: a file ending in .json or .json.gz, or a folder of such files, one of each rank.

    Raises:
        TraceError: there is no trace, or it cannot be read. The message names the file, the cause and the remedy.

    Example:
        >>> trace = labtrace.Trace("trace.json")
        >>> trace.temporal().set_index("part")["us"][["wall", "idle"]].tolist()
        [600.0, 220.0]
    """

    def __init__(self, path: Path | str) -> None:
        self.ranks: dict[int, Rank] = ByRank(ranks_of(read(path)))
        self.only_steps: tuple[int, int] | None = None
        self._played: dict[Rank, Remedies] = {}  # a part of the steps has its own ranks
        self._windows: dict[Rank, Rank] = {}

    @property
    def stamp(self) -> dict | None:
        """The stamp of the recording (of the first rank): device, versions, ... None if labkit did not record it."""
        return next(iter(self.ranks.values())).recording.stamp

    def steps(self, first: int, last: int | None = None) -> Trace:
        """The steps from `first` to `last` alone, as a trace of which every table and figure can be made.

        They hold the host events that began in these steps, and the kernels launched in them, whenever these ran.
        Events outside of all steps are left out, and so are kernels whose launch is not in the trace. Kernels of
        earlier steps are left out as well: the GPU may seem idle at the beginning. (Not if `labkit.record` made the
        trace, since it waits for the GPU after each step.) Times still count from the recording's first event.

        Args:
            first: a step by its number, which `temporal(by="step")` and ProfilerStep's name show.
            last: another step, or None for `first` alone.

        Raises:
            LabError: `last` comes before `first`.
            TraceError: a step is not in the trace, no step is marked, or no kernel was launched in these steps.
        """
        last = first if last is None else last
        if last < first:
            raise LabError(f"first={first} comes after last={last}. Name the earlier step first.")
        part = copy.copy(self)
        part.ranks = ByRank({number: rank.within(first, last) for number, rank in self.ranks.items()})
        part.only_steps = first, last
        return part

    def named_by(self, other: Trace) -> Trace:
        """This trace, where the kernels in CUDA graphs have the operators, ranges, shapes and lines of their twins.

        A replay is one call, so nothing in its recording says which operator a kernel is of. The twins are the same
        kernels in another recording, in the same order: of the same training launch by launch (the same batch,
        precision and speed-ups), or of the capture, whose launches have their kernels' names on AMD's GPUs. Rank by
        rank, or the only rank of each. Afterwards `operators`, `achieved`, `concurrency`, `remedies` and
        ``kernels("operator")`` have these names. The last also says which kernels have none: if they are many, the
        other recording is of another program, whose kernels may have the same names by chance.

        Ranges also come from the annotations that PyTorch 2.12 and later can write into a recording
        (`torch.cuda.graph_annotations.mark_kernels`, which labkit's "graph" calls): these need no other recording.

        Args:
            other: the other recording. It may be this one, if it holds the capture, too.

        Raises:
            TraceError: no kernel of a CUDA graph in this recording has a twin in the other one.
            LabError: a rank is missing there.
        """
        named, alone = copy.copy(self), len(self.ranks) == len(other.ranks) == 1
        theirs = dict.fromkeys(self.ranks, *other.ranks.values()) if alone else other.ranks
        named.ranks = ByRank({number: Rank(named_by(rank, theirs[number])) for number, rank in self.ranks.items()})
        return named

    def summary(self) -> pandas.DataFrame:
        """The verdict, one row a rank: the bottleneck, a sentence on it and what to try, and the numbers.

        | column | unit | meaning |
        |---|---|---|
        | bound_by | | the part of the work with the largest cost, or "several", or "unknown" |
        | verdict | | what bounds it, how sure that is and what to try: a sentence, SIMULATED |
        | first_remedy, times_faster_at_most | | the cause that it names, and that row of `remedies` |
        | why | | the reasons in words, beginning with the findings of `audit` |
        | wall_us, step_us | microseconds | step_us is the median of the steps, without the last: compare this one |
        | idle_of_wall | 0 to 1 | |
        | host_wait_of_idle, launched_of_idle | 0 to 1 | host_wait and other of `idle` |
        | data_of_idle | 0 to 1 | the host was loading data |
        | compute_of_busy, memory_of_busy, communication_of_busy | 0 to 1 | |
        | long_delays_of_kernels | 0 to 1 | that began over 100 us after their launch |
        | mean_queue | kernels | that waited |
        | cost_of_data, cost_of_host, cost_of_compute, ... | 0 to 1 | SIMULATED, of the wall time, without this part |

        All are of the marked steps, as `labtrace.findings.window` cuts them out, or of a whole recording without marks.

        bound_by is a part if its cost is at least a tenth and at least twice the next cost. "several" says that parts
        hide behind each other, or more than one has to get faster. "unknown": too much of the trace is lost, it cannot
        be played again, or the cause lies outside of it (`labtrace.findings.evidence`). Then a kind of work is the
        bound only if it keeps a stream busy for nine tenths of the time, with the host ahead. If a tenth is start-up,
        costs are those of the rest. "memory" means copies and memsets.

        Of a recording without a GPU, bound_by is a kind of work, as in `processor`, and the row has only the columns up
        to wall_us, the time of the steps.

        Raises:
            TraceError: the GPU's activity is missing.
        """
        apart = communication.between_ranks(self.ranks, 0)
        waits = dict(zip(self.ranks.values(), apart.eval("waited_us > sending_us or pipeline"), strict=True))

        def of_rank(rank: Rank) -> pandas.DataFrame:
            if rank.on_cpu:
                return processor.summary(rank, waits[rank])
            ranks = [*map(self._window, self.ranks.values())]
            return verdict.summary(rank, self._window(rank), ranks, lambda: self._remedies(rank))

        return self._table(of_rank)

    def temporal(self, by: str = "rank") -> pandas.DataFrame:
        """Busy and idle time of the whole device, all streams together.

        | column | unit | meaning |
        |---|---|---|
        | part | | see below |
        | us | microseconds | |
        | share_of_wall | 0 to 1 | |
        | share_of_busy | 0 to 1 | NaN for wall and idle |

        | part | meaning |
        |---|---|
        | wall | busy and idle together |
        | busy, idle | with and without work on any stream |
        | compute, memory, communication | within busy. They may overlap, and then add up to more than busy |
        | non_compute | HTA's: the busy time without compute |
        | compute_and_communication | HTA's: the time in which both ran |

        Take care which share is quoted: 93% of a busy time that is only 10% of the wall time is not "compute-bound".

        Args:
            by: "rank" for these rows of each rank, or "step" for these rows of each step, with its number in the column
                `step`. A step lasts from its first GPU activity to the first of the next step, so the steps add up to
                the whole except for kernels that ran before them.

        Raises:
            TraceError: there is no GPU activity, or, by step, no step.
        """
        table_of = {"rank": gpu.temporal, "step": gpu.temporal_by_step}
        check_known("by", by, table_of)
        return self._table(table_of[by])

    def idle(self) -> pandas.DataFrame:
        """Idle time by its cause, of the whole device and of every stream.

        | column | unit | meaning |
        |---|---|---|
        | scope | | "device", idle when no stream is busy, or "stream 7" |
        | cause | | see below |
        | us | microseconds | |
        | share_of_idle, share_of_wall | 0 to 1 | of the scope: a stream's wall time is its own |

        The idle times of the streams add up to more than the device's. HTA has only the streams'. The kernel
        that ends a gap tells the cause:

        | cause | meaning |
        |---|---|
        | host_wait | its launch began after the gap did, so the host was late, until the call ended |
        | kernel_wait | it was launched in time, and the gap is shorter than 30 us, as between any two kernels |
        | other | it was launched in time, and the gap is longer: it waited for another stream, for example |
        | unknown | its launch is not in the trace |

        What is left of a gap after the call is a gap of its own here. HTA counts all of it as host_wait.
        """
        return self._table(gpu.idle)

    def gaps(self, largest: int = 10) -> pandas.DataFrame:
        """The largest gaps in which no stream was busy, the largest first.

        | column | unit | meaning |
        |---|---|---|
        | begin_us | microseconds | since the rank's first event |
        | us | microseconds | |
        | cause | | as in `idle`, of the larger part |
        | filled_by | | the event that the launching thread spent most of the gap in: `events.host.filled_by` |
        | share_filled | 0 to 1 | the share of the gap that this covers |
        | operator_at_begin, operator_at_end | | the innermost operator or call at these instants, or "(none)" |
        | range_at_begin, range_at_end | | the innermost range at these instants, or "(none)" |
        | next_kernel | | that ended the gap |
        | launch_delay_us | microseconds | from the end of its launch to its begin, NaN without a launch in the trace |

        A short delay says that the GPU waited for the host, a long one that the kernel waited.

        Args:
            largest: how many gaps of each rank.
        """
        return self._table(lambda rank: gpu.gaps(rank, largest))

    def kernels(self, by: str = "name") -> pandas.DataFrame:
        """The kernels, the most expensive first.

        | column | unit | meaning |
        |---|---|---|
        | kind | | compute, memory or communication |
        | name | | |
        | count | | |
        | total_us, mean_us | microseconds | sum and mean of the durations |
        | share_of_busy | 0 to 1 | of the device's busy time: where streams overlap, the sum is more than 1 |
        | max_us, min_us | microseconds | by name: of the durations |
        | std_us | microseconds | by name: the deviation of the durations, NaN for a single one |

        Args:
            by: "name" for a row of each name, "kind" for a row of each kind, without `name`, "operator" for a row of
                each name and what launched it, or "memory" for a row of each memory operation. In place of `kind` and
                `name` the last have `operation` (DtoD, HtoD, DtoH, Memset, ...) and `pageable`, whether the host's
                memory was not pinned. By operator there are also the columns `operator`, its `inputs`, `range` and, of
                a recording with_stack=True, `module` and `line`: in the backward pass, of the call of `backward`.
        """
        table_of = {"name": gpu.kernels_by_name, "kind": gpu.kernels_by_kind, "memory": gpu.memory_operations}
        table_of |= {"operator": launchers.kernels_by_operator}
        check_known("by", by, table_of)
        return self._table(table_of[by])

    def queue(self) -> pandas.DataFrame:
        """The number of kernels that were launched but not started, as a step function.

        | column | unit | meaning |
        |---|---|---|
        | time_us | microseconds | since the rank's first event |
        | waiting | kernels | from this time until that of the next row |
        | mean | kernels | over the wall time, the same in all rows of a rank |

        A queue that is never empty keeps the GPU busy: long delays then mean that the host is ahead. Kernels without a
        launch in the trace are left out.

        Raises:
            TraceError: there is no GPU activity, or no launch in the trace.
        """
        return self._table(gpu.queue)

    def concurrency(self) -> pandas.DataFrame:
        """The number of streams that were busy at the same time.

        | column | unit | meaning |
        |---|---|---|
        | range | | "all", or the range in which the host launched the kernels |
        | busy_streams | streams | 0, 1, 2, ... |
        | us, share_of_wall | microseconds | how long that many were busy with kernels of this range |
        | union_us | microseconds | in which at least one was, the same in all rows of a range |
        | sum_us | microseconds | of the kernels' durations, the same in all rows of a range |

        The wall time of a range goes from its first to its last kernel, summed over all runs of the range. Kernels that
        overlap last longer, so compare the unions of two recordings, not the sums.
        """
        return self._table(gpu.concurrency)

    def communication(self) -> pandas.DataFrame:
        """Time of the communication with other ranks, and how much of it was exposed: one row a rank.

        Works for a trace that was recorded on a CPU with gloo, too. There the wall time is that of the recorded steps,
        and PyTorch's operators take the place of the kernels. Python's own time between two operators does not count
        as work.

        | column | unit | meaning |
        |---|---|---|
        | wall_us | microseconds | |
        | compute_us | microseconds | with any kernel, copy or memset under way that is no communication |
        | communication_us | microseconds | with the wait for the last rank to join |
        | hidden_us, exposed_us | microseconds | of it while something else was under way, and with nothing else |
        | share_of_wall | 0 to 1 | exposed_us over wall_us |
        | sending_us | microseconds | of communication_us, after the last rank had joined |
        | waited_us | microseconds | the rest of it |
        | came_last, collectives | | in how many this rank alone came last, of how many that were matched |
        | straggler | a rank | that the others waited for, if that stands out |
        | ranks, pipeline | | "2 of 8": how many have a file here; whether they are stages of a pipeline |

        waited_us and sending_us are of the collectives that `labtrace.tables.communication.matched` finds on all ranks
        of their group, NaN if there is none. straggler is NaN, too, if the others waited for less than a twentieth of
        the time or not twice as long as it, of a pipeline, or if ranks have no file. Communication is NaN if the trace
        is of one of several ranks, and none was found in it.
        """
        table = self._table(communication.communication)
        for name, values in communication.between_ranks(self.ranks, audit.missing_ranks(self.ranks.values())).items():
            table[name] = table["rank"].map(values)
        return table

    def operators(self) -> pandas.DataFrame:
        """Time on the host by operator or CUDA call. Works for a trace recorded on a CPU, too.

        | column | unit | meaning |
        |---|---|---|
        | name, kind | | kind is "operator" or "CUDA call" |
        | count | | |
        | self_us, total_us | microseconds | without and with the operators that it called |
        | share_of_self | 0 to 1 | of the sum of all self times |
        | gpu_self_us | microseconds | of the work on the GPU that it launched itself, whenever it ran |
        | gpu_total_us | microseconds | with that of the operators that it called |

        The last two are NaN if no launch of any kernel is in the trace. The most expensive on the host come first. An
        operator in a CUDA graph (`named_by`) takes no time there, and its count is that of the replays.
        """
        return self._table(operators.operators)

    def processor(self) -> pandas.DataFrame:
        """Where the steps' time went on a processor without a GPU, by kind of work: the rows add up to the steps.

        What happened only once is left out: a slow start, or one long step later that did not wait for data, if these
        took over three times as long as each of the other steps and are a fifth of the steps or fewer. Time without
        an operator is "Python and dispatch" or, if over a millisecond, "work outside of PyTorch" or the optimiser's.

        | column | unit | meaning |
        |---|---|---|
        | kind | | see `labtrace.tables.processor` |
        | us_per_step, us | microseconds | a step, NaN if no step is marked, and in all |
        | share_of_wall | 0 to 1 | of the steps, or of the whole recording if none is marked |
        | times_faster_at_half | | how many times as fast a step is if this kind takes half its time (Amdahl's law) |
        | times_faster_at_most | | and if it takes none |
        | most_of_it | | the operator that took most of it |
        | try | | advice, in words |

        Raises:
            TraceError: it was recorded with a GPU.
        """
        return self._table(processor.processor)

    def ranges(self) -> pandas.DataFrame:
        """Time on the host in ranges, in their order. Works for a trace recorded on a CPU, too.

        These are the ranges of labkit, without "labkit: ", and your ranges (`torch.profiler.record_function`). A trace
        without labkit's ranges also has those that PyTorch marks: of the DataLoader, the optimiser and collectives.
        Ranges in a CUDA graph (`named_by`) are counted, and take no time on the host.

        | column | unit | meaning |
        |---|---|---|
        | range, count | | |
        | total_us, mean_us | microseconds | to launch the range's work, on a GPU, not to do it |
        | us_per_step | microseconds | total_us over the number of recorded steps, or NaN if no step is marked |
        """
        return self._table(operators.ranges)

    def audit(self) -> pandas.DataFrame:
        """The faults of the recording, one row a finding, and no row if nothing was found. Works on any trace.

        | column | meaning |
        |---|---|
        | what, events | the finding, and the number of events that have it |
        | example | the name of one of them or, of the profiler's own warnings, the text |
        | share | 0 to 1, of the recorded time, that it can change, NaN if that is not known |
        | tables | the tables that cannot be trusted because of it: none if the share is below 1 % |

        The findings are events left out in reading; launches without a kernel, except while a graph is captured;
        replays of a graph with fewer kernels than others; kernels without a launch, or before it; kernels that begin
        after a call that waited for them, or start late on an idle GPU (the times of other clocks); kernels of a stream
        that overlap by over 10 us, or seem to run while several others do; kernels of no duration, since times were
        rounded to microseconds; times a minute from all others; ranks without a file; and warnings that the profiler
        wrote into the file.

        A file whose faults would make every table wrong is refused in reading. `summary` and `remedies` name first the
        findings that can mislead them, and give no factor if more than a twentieth of the recording is in doubt.
        """
        return self._table(lambda rank: audit.audit(rank, self.ranks.values()))

    def remedies(self) -> pandas.DataFrame:
        """The causes of the wall time, and how many times faster the trace would be at most without each: SIMULATED.

        | column | unit | meaning |
        |---|---|---|
        | cause | | see below |
        | us, share_of_wall | microseconds | of the wall time, that it costs |
        | times_faster_at_most | | infinite if nothing is left |
        | times_faster_at_half | | for kinds of compute kernels: if they took half of their time |
        | try | | advice, in words |

        The largest come first. Each cause is taken out by itself, and the trace is played again: see
        `labtrace.findings.remedies`. So a kernel that is hidden behind others costs nothing, and gains cannot be added
        up. The causes on the host are those of `labtrace.events.host.divide`; without "waiting calls", the host never
        waits for the GPU. On the GPU they are copies, communication, in a folder of several ranks without the waiting
        for other ranks, which is a cause of its own, pauses between kernels, and kinds of compute kernels, by their
        names. If start-up is a tenth of the recording, its row is the last, and the others are those of the rest.

        Raises:
            TraceError: there is no GPU activity, or no launch.
            LabError: too much of the trace is lost, an unchanged replay differs from it by more than a fifth, or the
                host waited in a way that does not show. A ReplayWarning says if it differs by more than a twentieth,
                or something is lost or missing.
        """
        table = self._table(lambda rank: self._remedies(rank).rows())
        warn_of(" ".join(dict.fromkeys(filter(None, (self._remedies(rank).doubt for rank in self.ranks.values())))))
        return with_stamp(table, {**(self.stamp or {}), "SIMULATED": True})

    def _remedies(self, rank: Rank) -> Remedies:
        """The replays of a rank, which `summary` and `remedies` share."""
        if rank not in self._played:
            self._played[rank] = Remedies(self._window(rank), [*map(self._window, self.ranks.values())])
        return self._played[rank]

    def _window(self, rank: Rank) -> Rank:
        """What `summary` and `remedies` are about."""
        if rank not in self._windows:
            self._windows[rank] = window(rank) if rank.has_gpu else rank
        return self._windows[rank]

    def what_if(
        self, host: float = 1.0, kernels: float = 1.0, graph: bool = False, data: float = 1.0, rank: int | None = None
    ) -> Replay:
        """Plays the recording again, unchanged or with something changed: SIMULATED.

        `trace.what_if(host=0.5).timeline.wall / trace.what_if().timeline.wall` is the share of the time that a host of
        twice the speed would need. `labtrace.replay.recorded_replay` says what the model leaves out, docs/trust.md how
        near it came to what was recorded after such changes.

        Args:
            host: a factor on the host's time, but not on its waits or on the loading of data.
            kernels: a factor on the durations of all kernels. The host's time to launch them stays.
            graph: whether one call launches each step, as a CUDA graph, without the waits in the middle of a step.
            data: a factor on the time in which the host loads data, or waits for its loader, as far as ranges tell (the
                DataLoader's own, and labkit's "data"): 0 is a loader that is always ahead.
            rank: to play, of a trace of several.

        Raises:
            TraceError: the trace holds no GPU activity.
            LabError: a factor is negative or no number, `rank` names none of several ranks, the trace has no launches
                or, for a graph, no steps, or the unchanged replay differs from the recording by more than a fifth. If
                by more than a twentieth, a ReplayWarning says so.
        """
        chosen = next(iter(self.ranks)) if rank is None and len(self.ranks) == 1 else rank
        if chosen not in self.ranks:
            raise LabError(f"rank={rank}: a replay is of one rank. Choose among {', '.join(map(str, self.ranks))}.")
        return replay_rank(self.ranks[chosen], host, kernels, graph, data)

    def diff(self, other: Trace, by: str = "name") -> pandas.DataFrame:
        """The work of another trace against this one's, step by step, the largest difference first.

        Rank by rank, or the only rank of each. Kernels that were launched outside of the recorded steps do not count,
        such as those of the step before, which may still run when the recording begins. If PyTorch's version, the
        precision or the GPU differs, so do most kernels' names: then compare them by operator. `labtrace report` of two
        files does. Of traces without a GPU, it is the work of the processor.

        | column | unit | meaning |
        |---|---|---|
        | name | | or operator, or kind |
        | operator | | by name: that launched most of them, "(none)" in a CUDA graph |
        | count, us | a step | of this trace, or plain sums if neither has steps; by operator its calls count |
        | count_other, us_other | a step | of the other one |
        | difference_us | microseconds | of the other trace beyond this one |
        | change | | "appeared", "vanished", "more often" or "less often" (counts, by 5 %), "slower", "faster", "same" |

        If one kernel vanished under an operator and another appeared, a library chose another algorithm.

        Args:
            other: for example the same training after a change.
            by: "name" for a row of each kernel's name, "operator" for one of each operator that launched kernels, or
                "kind" for one of each kind of work, such as convolutions.

        Raises:
            TraceError: no rank is in both, or only one has steps or a GPU.
        """
        check_known("by", by, ("name", "operator", "kind"))
        return with_stamp(difference.differences(self.ranks, other.ranks, by), self.stamp, other.stamp)

    def achieved(self) -> pandas.DataFrame:
        """The rates that convolutions, matrix products and normalisation achieved, by operator and shapes.

        | column | unit | meaning |
        |---|---|---|
        | name, inputs, dtype, count | | inputs are the shapes |
        | us | microseconds | on the GPU, of all |
        | flops, bytes | | the least of one call |
        | tflop_per_s, share_of_peak, gb_per_s, share_of_memory_peak | | of the peaks in `labtrace.tables.peaks` |

        Values that the trace does not tell, or of a GPU that we do not know, are NaN: see `labtrace.tables.achieved`.

        Raises:
            TraceError: there is no GPU activity, or the trace was recorded without record_shapes=True.
        """
        return self._table(achieved.achieved)

    def _table(self, of_rank: Callable[[Rank], pandas.DataFrame]) -> pandas.DataFrame:
        found = {number: of_rank(rank) for number, rank in self.ranks.items()}
        for number, table in found.items():
            table.insert(0, "rank", number)
        return with_stamp(pandas.concat(found.values(), ignore_index=True), self.stamp)
