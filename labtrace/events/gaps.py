"""The gaps between kernels, in which the GPU was idle, and their causes."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.intervals import Union

CAUSES = ("host_wait", "kernel_wait", "other", "unknown")
KERNEL_WAIT_US = 30.0  # HTA's default; its documentation says nanoseconds, its code compares microseconds
LONG_DELAY_US = 100.0  # HTA's default, from a launch to its kernel


def find_gaps(kernels: pandas.DataFrame) -> pandas.DataFrame:
    """The gaps in which none of these kernels ran, between the first and the last kernel.

    | column | unit | meaning |
    |---|---|---|
    | begin, end, us | microseconds | |
    | cause | | as `labtrace.Trace.idle` explains |
    | next | | the place in `kernels` of the kernel that ended the gap |
    """
    begin, end = Union(kernels["begin"], kernels["end"]).gaps()
    following = np.searchsorted(kernels["begin"], end, side="left")  # kernels are in the order they began
    cause = idle_causes(begin, end, kernels["call_begin"].to_numpy()[following])
    return pandas.DataFrame({"begin": begin, "end": end, "us": end - begin, "cause": cause, "next": following})


def idle_causes(begin: np.ndarray, end: np.ndarray, launched: np.ndarray) -> np.ndarray:
    """The cause of each gap from `begin` to `end` whose next kernel was launched at `launched` (NaN if unknown).

    One of `CAUSES`, by the rule of `labtrace.Trace.idle`. All times in microseconds.
    """
    rules = [np.isnan(launched), launched > begin, end - begin < KERNEL_WAIT_US]
    return np.select(rules, ["unknown", "host_wait", "kernel_wait"], "other")
