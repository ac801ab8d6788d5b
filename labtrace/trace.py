"""`Trace`: a recording as tables: those of Holistic Trace Analysis (HTA), corrected where they mislead, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas

from labtrace import achieved, audit, communication, critical_path, difference, operators, tables, verdict
from labtrace.errors import LabkitError
from labtrace.rank import Rank
from labtrace.reading import TraceError
from labtrace.recorded import Recorded, stamped

if TYPE_CHECKING:
    from labtrace.replay.remedies import Remedies


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
        ranks: the events of each rank, as a `labtrace.rank.Rank`.
        only_steps: the first and the last step if `steps` made this trace, or None for a whole recording.

    Args:
        path: a file ending in .json or .json.gz, or a folder of such files, one of each rank.

    Raises:
        TraceError: there is no trace, or it cannot be read. The message names the file, the cause and the remedy.
    """

    def summary(self) -> pandas.DataFrame:
        """The verdict, one row a rank: its first remedy, what bounds it if one cause dominates, and the numbers.

        | column | unit | meaning |
        |---|---|---|
        | bound_by | | the part of the work with the largest cost, or "several", or "unknown" |
        | first_remedy, times_faster_at_most | | the first row of `remedies` |
        | why | | the reasons in words, beginning with what `audit` found |
        | wall_us | microseconds | |
        | idle_of_wall | 0 to 1 | |
        | host_wait_of_idle | 0 to 1 | the host was late |
        | data_of_idle | 0 to 1 | the host was loading data |
        | compute_of_busy, memory_of_busy, communication_of_busy | 0 to 1 | |
        | long_delays_of_kernels | 0 to 1 | that began over 100 us after their launch |
        | mean_queue | kernels | that waited |
        | cost_of_data, cost_of_host, cost_of_compute, ... | 0 to 1 | SIMULATED, of the wall time, without this part |

        bound_by is a part if its cost is at least a tenth and at least twice the next cost. "several" says that parts
        hide behind each other, or more than one has to get faster. "unknown": the trace cannot be played again, or too
        much of it is lost. "memory" means copies and memsets. Only a trace with shapes tells whether arithmetic or
        memory limits a kernel: see `achieved`. If three gaps or fewer are most of the idle time, `why` names them.

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
        | waited_us | microseconds | longer than the fastest rank in the collectives |
        | straggler | a rank | that the others waited for: it waited least |
        | ranks | | "2 of 8": how many have a file here |

        waited_us and straggler are NaN if there is only one rank, or if ranks differ in the number of their
        collectives, or have none. straggler is also NaN if all waited equally, or if ranks have no file. Communication
        is NaN if the trace is of one of several ranks, and none was found in it.
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

        | column | unit | meaning |
        |---|---|---|
        | name, kind | | kind is "operator" or "CUDA call" |
        | count | | |
        | self_us, total_us | microseconds | without and with the operators that it called |
        | share_of_self | 0 to 1 | of the sum of all self times |
        | gpu_self_us | microseconds | of the work on the GPU that it launched itself, whenever it ran |
        | gpu_total_us | microseconds | with that of the operators that it called |

        The last two are NaN if no launch of any kernel is in the trace. The most expensive on the host come first.
        """
        return self._table(operators.operators)

    def ranges(self) -> pandas.DataFrame:
        """Time on the host in ranges, in their order. Works for a trace recorded on a CPU, too.

        The ranges are labkit's, without "labkit: ", and those of your own (`torch.profiler.record_function`). In a
        trace without labkit's they are also those that PyTorch marks: of the DataLoader, the optimiser and collectives.

        | column | unit | meaning |
        |---|---|---|
        | range, count | | |
        | total_us, mean_us | microseconds | to launch the range's work, on a GPU, not to do it |
        | us_per_step | microseconds | total_us over the number of recorded steps, or NaN if no step is marked |
        """
        return self._table(tables.ranges)

    def audit(self) -> pandas.DataFrame:
        """What is wrong with the recording, one row a finding, and none if nothing was found. Works on any trace.

        | column | meaning |
        |---|---|
        | what, events | the finding, and how many events it is of |
        | example | the name of one of them or, of the profiler's own warnings, the text |
        | tables | those that cannot be trusted for it |

        The findings are

        - events left out in reading,
        - launches without a kernel, except while a graph is captured,
        - replays of a graph with fewer kernels than others,
        - kernels without a launch, or before it,
        - correlations used twice,
        - kernels of a stream that overlap by over 10 us,
        - calls of a thread that cross,
        - times of other clocks, in other units or an hour from the rest,
        - ranks without a file, and
        - warnings that the profiler wrote into the file.

        What would make every table wrong is refused in reading instead. `summary` and `remedies` say first what can
        mislead them, and give no factor if that is more than a twentieth of the recording.
        """
        return self._table(lambda rank: audit.audit(rank, self.ranks.values()))

    def remedies(self) -> pandas.DataFrame:
        """The causes of the wall time, and how many times faster the trace would be at most without each: SIMULATED.

        | column | unit | meaning |
        |---|---|---|
        | cause | | see below |
        | us, share_of_wall | microseconds | of the wall time, that it costs |
        | times_faster_at_most | | infinite if nothing is left |
        | try | | advice, in words |

        The largest come first. Each cause is taken out by itself, and the trace is played again: see
        `labtrace.replay.remedies`. So a kernel that is hidden behind others costs nothing, and gains cannot be added
        up. The causes on the host are data loading and those of `labtrace.host.divide`: launches, start-up, memory
        calls, waiting calls, other host work. On the GPU they are copies, communication, waiting for other ranks in a
        folder of several, and kinds of compute kernels, by their names.

        Raises:
            TraceError: there is no GPU activity.
            LabkitError: no launch is in the trace, too much of it is lost, an unchanged replay differs from it by more
                than a fifth, or the host waited in a way that does not show.

        Warns:
            ReplayWarning: it differs by more than a twentieth, or something is lost or missing.
        """
        from labtrace.replay.recorded_replay import warn_of

        table = self._table(lambda rank: self._remedies(rank).rows())
        warn_of(" ".join(dict.fromkeys(filter(None, (self._remedies(rank).doubt for rank in self.ranks.values())))))
        return stamped(table, {**(self.stamp or {}), "SIMULATED": True})

    def _remedies(self, rank: Rank) -> Remedies:
        """The replays of a rank, which `summary` and `remedies` share."""
        from labtrace.replay.remedies import Remedies

        if rank not in self._played:
            self._played[rank] = Remedies(rank, self.ranks.values())
        return self._played[rank]

    def critical_path(self) -> pandas.DataFrame:
        """The chain of events that determines the wall time, through host and GPU: its rows add up to the wall time.

        Making work beside this path faster gains nothing. Making work on the path faster gains at most its time here,
        since another chain may be almost as long. See `labtrace.critical_path`.

        | column | unit | meaning |
        |---|---|---|
        | where, what | | see below |
        | name | | of the kernel or, on the host, of the innermost operator or call |
        | us, share_of_wall | microseconds | |
        | events | | how many parts of the path |

        | where | what |
        |---|---|
        | host | "data loading" or the innermost range |
        | GPU | the kind of kernel |
        | between | "launch latency", from a launch to its kernel |
        | between | "pause between kernels" |
        | between | "unknown wait", a pause of more than 30 us, or before kernels whose launch is not in the trace |

        Raises:
            TraceError: there is no GPU activity.
            LabkitError: no launch is in the trace.
        """
        return self._table(critical_path.critical_path)

    def diff(self, other: Trace) -> pandas.DataFrame:
        """The kernels of another trace against this one's, step by step, the largest difference first.

        Rank by rank, or the only rank of each. If PyTorch's version or the GPU differs, so do most kernels' names.

        | column | unit | meaning |
        |---|---|---|
        | name | | |
        | operator | | that launched most of them |
        | count, us | a step | of this trace, or plain sums if neither has steps |
        | count_other, us_other | a step | of the other one |
        | difference_us | microseconds | of the other trace beyond this one |
        | change | | "appeared", "vanished", "more often" or "less often" (counts, by 5 %), "slower", "faster", "same" |

        If one kernel vanished under an operator and another appeared, a library chose another algorithm.

        Args:
            other: for example the same training after a change.

        Raises:
            TraceError: no rank is in both, only one has steps, or there is no GPU activity.
        """
        return stamped(difference.differences(self.ranks, other.ranks), self.stamp, other.stamp)

    def achieved(self) -> pandas.DataFrame:
        """The rates that convolutions, matrix products and normalisation achieved, by operator and shapes.

        | column | unit | meaning |
        |---|---|---|
        | name, inputs, dtype, count | | inputs are the shapes |
        | us | microseconds | on the GPU, of all |
        | flops, bytes | | the least of one call |
        | tflop_per_s, gb_per_s | | |

        NaN is what the trace does not tell: see `labtrace.achieved`.

        Raises:
            TraceError: there is no GPU activity, or the trace was recorded without record_shapes=True.
        """
        return self._table(achieved.achieved)
