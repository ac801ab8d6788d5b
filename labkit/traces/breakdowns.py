"""Where the time of one rank went: busy and idle, what the idle GPU waited for, which kernels and operators it took.

Each function makes one rank's rows of the table that the method of the same name of `labkit.Trace` documents.
"""

from __future__ import annotations

import numpy as np
import pandas

from labkit.traces.intervals import Nesting, Union, busy
from labkit.traces.ranks import Rank, names_at
from labkit.traces.reading import TraceError

KINDS = ("compute", "memory", "communication")
CAUSES = ("host_wait", "kernel_wait", "other", "unknown")
KERNEL_WAIT = 30.0  # microseconds: HTA's default, which its documentation calls nanoseconds


def temporal(rank: Rank) -> pandas.DataFrame:
    """Between the first and the last GPU activity."""
    return _parts(rank, np.array([rank.start]), np.array([rank.stop])).drop(columns="window")


def temporal_by_step(rank: Rank) -> pandas.DataFrame:
    """From the first GPU activity of each step to that of the next, so that the steps add up to the whole."""
    kernels = rank.kernels
    begins = kernels[kernels["step"] >= 0].groupby("step")["begin"].min()
    if begins.empty:
        raise TraceError(
            f"{rank.recording.file}: no steps in this trace: there is no ProfilerStep range round a launch. "
            "labkit.record marks the steps; elsewhere call the profiler's step() after each. temporal() needs none."
        )
    begin = np.maximum.accumulate(begins.to_numpy())
    table = _parts(rank, begin, np.append(begin[1:], rank.stop))
    table.insert(0, "step", begins.index.to_numpy()[table.pop("window")])
    return table


def _parts(rank: Rank, begin: np.ndarray, end: np.ndarray) -> pandas.DataFrame:
    """The parts of the time in each window from `begin` to `end`; the window's number is in the column `window`."""
    kernels, wall = rank.kernels, end - begin
    busy = rank.busy.covered(begin, end)
    times = {"wall": wall, "busy": busy, "idle": wall - busy}
    for kind in KINDS:
        ours = kernels[kernels["kind"] == kind]
        times[kind] = Union(ours["begin"], ours["end"]).covered(begin, end)
    table = pandas.concat(
        pandas.DataFrame({"window": np.arange(len(wall)), "part": part, "us": us, "wall": wall, "busy": busy})
        for part, us in times.items()
    ).sort_values("window", kind="stable", ignore_index=True)
    table["share_of_wall"] = share(table["us"], table.pop("wall"))
    table["share_of_busy"] = share(table["us"], table.pop("busy")).where(~table["part"].isin(["wall", "idle"]))
    return table


def share(part: pandas.Series, whole: pandas.Series | float) -> pandas.Series:
    """part / whole, NaN where the whole is nothing."""
    return part / pandas.Series(whole, index=part.index).replace(0.0, np.nan)


def find_gaps(kernels: pandas.DataFrame) -> pandas.DataFrame:
    """The times at which none of these kernels ran, between the first and the last of them.

    Columns: begin, end, us; cause, as `labkit.Trace.idle` explains; next, the place in `kernels` of the kernel that
    ended the gap.
    """
    begin, end = Union(kernels["begin"], kernels["end"]).gaps()
    following = np.searchsorted(kernels["begin"], end, side="left")  # kernels are in the order they began
    launched = kernels["call_begin"].to_numpy()[following]
    cause = np.select(
        [np.isnan(launched), launched > begin, end - begin < KERNEL_WAIT],
        ["unknown", "host_wait", "kernel_wait"],
        "other",
    )
    return pandas.DataFrame({"begin": begin, "end": end, "us": end - begin, "cause": cause, "next": following})


def idle(rank: Rank) -> pandas.DataFrame:
    """The device's idle time by cause, then every stream's."""
    kernels = rank.kernels
    scopes = {"device": kernels}
    scopes |= {f"stream {stream}": group for stream, group in kernels.groupby("stream")}
    tables = []
    for scope, ours in scopes.items():
        us = find_gaps(ours).groupby("cause")["us"].sum().reindex(CAUSES, fill_value=0.0)
        wall = ours["end"].max() - ours["begin"].min()
        shares = {"share_of_idle": share(us, us.sum()), "share_of_wall": share(us, wall)}
        tables.append(pandas.DataFrame({"scope": scope, "cause": us.index, "us": us, **shares}))
    return pandas.concat(tables, ignore_index=True)


def gaps(rank: Rank, largest: int) -> pandas.DataFrame:
    """The largest gaps of the device, and what the host was doing."""
    found = find_gaps(rank.kernels).nlargest(largest, "us")
    after = rank.kernels.iloc[found["next"]]
    return pandas.DataFrame(
        {
            "begin_us": found["begin"].to_numpy(),
            "us": found["us"].to_numpy(),
            "cause": found["cause"].to_numpy(),
            "operator_at_begin": names_at(rank.operators, found["begin"]),
            "operator_at_end": names_at(rank.operators, found["end"]),
            "range_at_begin": names_at(rank.ranges, found["begin"]),
            "range_at_end": names_at(rank.ranges, found["end"]),
            "next_kernel": after["name"].to_numpy(),
            "launch_delay_us": after["delay"].to_numpy(),
        }
    )


def kernels_by_kind(rank: Rank) -> pandas.DataFrame:
    """One row a kind. One that did not occur took no time, and has no mean."""
    table = _totals(rank, rank.kernels, ["kind"]).set_index("kind").reindex(KINDS)
    table = table.fillna({"count": 0, "total_us": 0.0, "share_of_busy": 0.0}).astype({"count": int})
    return table.sort_values("total_us", ascending=False, kind="stable").reset_index()


def kernels_by_name(rank: Rank) -> pandas.DataFrame:
    """One row a kernel, by its name."""
    return _totals(rank, rank.kernels, ["kind", "name"])


def memory_operations(rank: Rank) -> pandas.DataFrame:
    """One row a kind of memory operation, pageable apart."""
    ours = rank.kernels[rank.kernels["kind"] == "memory"]
    direction = ours["name"].str.extract(r"^Memcpy (\w+)", expand=False)
    operation = direction.fillna(ours["name"].where(~ours["name"].str.startswith("Memset"), "Memset"))
    pageable = ours["name"].str.contains("Pageable", regex=False)
    return _totals(rank, ours.assign(operation=operation, pageable=pageable), ["operation", "pageable"])


def _totals(rank: Rank, kernels: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    table = kernels.groupby(by)["duration"].agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["share_of_busy"] = share(table["total_us"], busy(rank.kernels["begin"], rank.kernels["end"]))
    return table.sort_values("total_us", ascending=False, ignore_index=True)


def operators(rank: Rank) -> pandas.DataFrame:
    """One row an operator or call, by its name."""
    host = rank.operators
    own = np.zeros(len(host))
    for rows in host.groupby(["pid", "tid"], sort=False).indices.values():
        own[rows] = Nesting(host["begin"].to_numpy()[rows], host["end"].to_numpy()[rows]).own_time()
    kind = np.where(host["category"] == "cpu_op", "operator", "CUDA call")
    table = host.assign(kind=kind, own=own).groupby(["name", "kind"])
    table = table.agg(count=("own", "size"), self_us=("own", "sum"), total_us=("duration", "sum")).reset_index()
    table["share_of_self"] = share(table["self_us"], table["self_us"].sum())
    return table.sort_values("self_us", ascending=False, ignore_index=True)


def ranges(rank: Rank) -> pandas.DataFrame:
    """One row a range, in the order they first began."""
    in_order = rank.ranges.sort_values("begin").groupby("name", sort=False)["duration"]
    table = in_order.agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["us_per_step"] = table["total_us"] / (len(rank.steps) or np.nan)
    return table.rename(columns={"name": "range"})
