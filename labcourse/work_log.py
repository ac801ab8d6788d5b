"""The log of a project: one line for each attempt, as a table."""

from __future__ import annotations

from numbers import Real

import pandas

from labkit.errors import LabkitError


class WorkLog:
    """What was tried, in which order, with which reason and which result.

        log = WorkLog()
        log.attempt("three blocks compute a third", bar="compute", seconds=31.2, conclusion="kept, 2.1 times as fast")
        log.table()

    It follows the work log that Stanford's CS149 asks for in its programming assignments.
    """

    def __init__(self) -> None:
        self.attempts: list[dict[str, object]] = []

    def attempt(
        self,
        hypothesis: str,
        *,
        bar: str,
        seconds: float | None,
        conclusion: str,
        stopped: str = "",
        assistant: str = "",
    ) -> None:
        """Writes one attempt down, also one that failed.

        Args:
            hypothesis: what was changed, and why it should be faster.
            bar: the bar of a breakdown, or the row of a table, that should move.
            seconds: the result, for example of a training or of a step, or None if it did not run.
            conclusion: what the result says of the hypothesis.
            stopped: why no more was tried in this direction.
            assistant: what a coding assistant contributed, if one did.

        Raises:
            LabkitError: `seconds` is neither None nor a number above 0.
        """
        if seconds is not None and not (isinstance(seconds, Real) and seconds > 0):
            raise LabkitError(f"seconds={seconds!r} is no time. Give seconds, or None for an attempt that did not run.")
        self.attempts.append(
            dict(
                hypothesis=hypothesis, bar=bar, seconds=seconds,
                conclusion=conclusion, stopped=stopped, assistant=assistant,
            )
        )  # fmt: skip

    def table(self) -> pandas.DataFrame:
        """A row for each attempt, numbered from 1. The column "times faster" compares with the first that ran."""
        table = pandas.DataFrame(self.attempts, index=range(1, len(self.attempts) + 1)).rename_axis("attempt")
        if not self.attempts:
            return table
        seconds = table["seconds"].astype(float)
        ran = seconds.dropna()
        faster = (ran.iloc[0] if len(ran) else float("nan")) / seconds
        table.insert(3, "times faster", faster.round(2))
        return table
