"""The recording that a `labkit.Trace` is made of: its ranks, its stamp, some of its steps, and the tables of a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pandas

from labtrace import tables
from labtrace.errors import LabkitError, check_known
from labtrace.rank import Rank
from labtrace.reading import read


class Recorded:
    """The ranks of a recording, and what their GPUs did. `labkit.Trace` has the other tables, and the predictions.

    Attributes:
        ranks: the events of each rank, as a `labtrace.rank.Rank`.
        only_steps: the first and the last step if `steps` made this trace, or None for a whole recording.
    """

    def __init__(self, path: Path | str) -> None:
        self.ranks = {number: Rank(recording) for number, recording in read(path).items()}
        self.only_steps: tuple[int, int] | None = None
        self._played: dict[Rank, Any] = {}  # replays; a part of the steps has its own ranks

    @property
    def stamp(self) -> dict | None:
        """The stamp of the recording (of the first rank): device, versions, ... None if labkit did not record it."""
        return next(iter(self.ranks.values())).recording.stamp

    def steps(self, first: int, last: int | None = None) -> Self:
        """The steps from `first` to `last` alone, as a trace of which every table and figure can be made.

        They hold the host events that began in these steps, and the kernels launched in them, whenever these ran.
        Events outside of all steps are left out, and so are kernels whose launch is not in the trace. Kernels of
        earlier steps are left out as well: the GPU may seem idle at the beginning. (Not if `labkit.record` made the
        trace, since it waits for the GPU after each step.) Times still count from the recording's first event.

        Args:
            first: a step by its number, which `temporal(by="step")` and ProfilerStep's name show.
            last: another step, or None for `first` alone.

        Raises:
            LabkitError: `last` comes before `first`.
            TraceError: a step is not in the trace, no step is marked, or no kernel was launched in these steps.
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
        table_of = {"rank": tables.temporal, "step": tables.temporal_by_step}
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

        The idle times of the streams add up to more than the device's. HTA knows only those of the streams. The kernel
        that ends a gap tells the cause:

        | cause | meaning |
        |---|---|
        | host_wait | its launch began after the gap did, so the host was late |
        | kernel_wait | it was launched in time, and the gap is shorter than 30 us, as between any two kernels |
        | other | it was launched in time, and the gap is longer: it waited for another stream, for example |
        | unknown | its launch is not in the trace |
        """
        return self._table(tables.idle)

    def gaps(self, largest: int = 10) -> pandas.DataFrame:
        """The largest gaps in which no stream was busy, the largest first.

        | column | unit | meaning |
        |---|---|---|
        | begin_us | microseconds | since the rank's first event |
        | us | microseconds | |
        | cause | | as in `idle` |
        | filled_by | | what the launching thread spent most of the gap with, see `labtrace.host.filled_by` |
        | share_filled | 0 to 1 | the share of the gap that this covers |
        | operator_at_begin, operator_at_end | | the innermost operator or call at these instants, or "(none)" |
        | range_at_begin, range_at_end | | the innermost range at these instants, or "(none)" |
        | next_kernel | | that ended the gap |
        | launch_delay_us | microseconds | from the end of its launch to its begin, NaN without a launch in the trace |

        A short delay says that the GPU waited for the host, a long one that the kernel waited.

        Args:
            largest: how many gaps of each rank.
        """
        return self._table(lambda rank: tables.gaps(rank, largest))

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
            by: "name" for a row of each name, "kind" for a row of each kind, without `name`, or "memory" for a row of
                each memory operation. In place of `kind` and `name` these have `operation` (DtoD, HtoD, DtoH, Memset,
                ...) and `pageable`, whether the host's memory was not pinned.
        """
        table_of = {
            "name": tables.kernels_by_name,
            "kind": tables.kernels_by_kind,
            "memory": tables.memory_operations,
        }
        check_known("by", by, table_of)
        return self._table(table_of[by])

    def launches(self, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> pandas.DataFrame:
        """The kernels that were launched slowly or had to wait, whichever call launched them: graphs and Triton too.

        | column | unit | meaning |
        |---|---|---|
        | what | | a row each: long delay, long call, kernel shorter than its call, no launch found |
        | kernels, share_of_kernels | | how many, and of all with a known launch |
        | gpu_us, share_of_gpu_time | microseconds | the sum of their durations, and of the sum over all |
        | share_of_wall | 0 to 1 | the part of the wall time in which at least one of them ran |

        The last row counts the kernels without a launch, the others are of the rest, and NaN if there is none. A
        kernel may be in several rows. On a busy GPU a long delay is a full queue and no fault: see `queue` and
        `summary`. A graph's call is shared among its kernels. As in HTA, long calls do not count as shorter kernels.

        Args:
            runtime_cutoff: microseconds on the host in one call.
            delay_cutoff: microseconds from the end of the call to the begin of the kernel.
        """
        return self._table(lambda rank: tables.launches(rank, runtime_cutoff, delay_cutoff))

    def queue(self) -> pandas.DataFrame:
        """The number of kernels that were launched but not started, as a step function.

        | column | unit | meaning |
        |---|---|---|
        | time_us | microseconds | since the rank's first event |
        | waiting | kernels | from this time until that of the next row |
        | mean | kernels | over the wall time, the same in all rows of a rank |

        A queue that is never empty keeps the GPU busy: long delays then mean that the host is ahead. Kernels without a
        launch in the trace are left out, and `launches` counts them.

        Raises:
            TraceError: there is no GPU activity, or no launch in the trace.
        """
        return self._table(tables.queue)

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
        return self._table(tables.concurrency)

    def _table(self, of_rank: Callable[[Rank], pandas.DataFrame]) -> pandas.DataFrame:
        found = {number: of_rank(rank) for number, rank in self.ranks.items()}
        for number, table in found.items():
            table.insert(0, "rank", number)
        return stamped(pandas.concat(found.values(), ignore_index=True), self.stamp)


def stamped(table: pandas.DataFrame, stamp: dict | None, *others: dict | None) -> pandas.DataFrame:
    """The table with this stamp in its `attrs`, marked if it or one of the others is that of a simulation."""
    simulated = any("SIMULATED" in one for one in (stamp, *others) if one)
    if stamp or simulated:
        table.attrs["stamp"] = {**(stamp or {}), **({"SIMULATED": True} if simulated else {})}
    if simulated:
        table.columns.name = "SIMULATED"  # stands in the corner of the table, wherever it is shown
    return table
