"""The recording that a `labkit.Trace` is made of: its ranks, its stamp, some of its steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pandas

from labkit.errors import LabkitError
from labkit.traces.rank import Rank
from labkit.traces.reading import TraceError, read


class Recorded:
    """The ranks of a recording, and a table of all of them from a table of each. `labkit.Trace` has the tables.

    Attributes:
        ranks: the events of each rank; see `labkit.traces.rank.Rank`.
        only_steps: the first and the last step, if `steps` made this trace; None for a whole recording.
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
            last: another step; None for `first` alone.

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

    def _table(self, of_rank: Callable[[Rank], pandas.DataFrame]) -> pandas.DataFrame:
        found = {number: self._of(rank, of_rank) for number, rank in self.ranks.items()}
        for number, table in found.items():
            table.insert(0, "rank", number)
        table = pandas.concat(found.values(), ignore_index=True)
        return stamped(table, self.stamp)

    def _of(self, rank: Rank, of_rank: Callable[[Rank], pandas.DataFrame]) -> pandas.DataFrame:
        """One rank's table; its error also says if other ranks differ in having a GPU."""
        try:
            return of_rank(rank)
        except TraceError as error:
            others = [str(number) for number, other in self.ranks.items() if other.has_gpu]
            if rank.has_gpu or not others:
                raise
            raise TraceError(
                f"{error} Other ranks of this folder were recorded on a GPU ({', '.join(others)}): open their files "
                f"one by one, or move {rank.recording.file.name} away."
            ) from error


def stamped(table: pandas.DataFrame, stamp: dict | None, *others: dict | None) -> pandas.DataFrame:
    """The table with this stamp in its `attrs`, marked if it or one of the others is that of a simulation."""
    simulated = any("SIMULATED" in one for one in (stamp, *others) if one)
    if stamp or simulated:
        table.attrs["stamp"] = {**(stamp or {}), **({"SIMULATED": True} if simulated else {})}
    if simulated:
        table.columns.name = "SIMULATED"  # stands in the corner of the table, wherever it is shown
    return table
