"""The GPU's tables: busy and idle time, kernels, launches, the queue, concurrency.

Each function makes one rank's rows of the table that the `labtrace.Trace` method of the same name documents.
"""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.gaps import CAUSES, KERNEL_WAIT_US, LONG_DELAY_US, find_gaps
from labtrace.events.host import filled_by
from labtrace.events.intervals import Union, busy, levels
from labtrace.events.rank import Rank

KINDS = ("compute", "memory", "communication")


def temporal(rank: Rank) -> pandas.DataFrame:
    """Between the first and the last GPU activity."""
    return _parts(rank, np.array([rank.start]), np.array([rank.stop])).drop(columns="window")


def temporal_by_step(rank: Rank) -> pandas.DataFrame:
    """Each step's parts, from its first GPU activity to the first of the next step: the steps add up to the whole."""
    kernels = rank.kernels
    begins = kernels[kernels["step"] >= 0].groupby("step")["begin"].min()
    if begins.empty:
        raise TraceError(
            f"{rank.recording.file}: no steps: call the profiler's step() after each. temporal() needs none."
        )
    begin = np.maximum.accumulate(begins.to_numpy())
    table = _parts(rank, begin, np.append(begin[1:], rank.stop))
    table.insert(0, "step", begins.index.to_numpy()[table.pop("window")])
    return table


def _parts(rank: Rank, begin: np.ndarray, end: np.ndarray) -> pandas.DataFrame:
    """The parts of each window of time from `begin` to `end`, with the window's number in the column `window`."""
    kernels, wall = rank.kernels, end - begin
    busy = rank.busy.covered(begin, end)
    times = {"wall": wall, "busy": busy, "idle": wall - busy}
    for kind in KINDS:
        ours = kernels[kernels["kind"] == kind]
        times[kind] = Union(ours["begin"], ours["end"]).covered(begin, end)
    times["non_compute"] = busy - times["compute"]
    together = kernels[kernels["kind"].isin(["compute", "communication"])]
    either = Union(together["begin"], together["end"]).covered(begin, end)
    times["compute_and_communication"] = times["compute"] + times["communication"] - either
    table = pandas.concat(
        pandas.DataFrame({"window": np.arange(len(wall)), "part": part, "us": us, "wall": wall, "busy": busy})
        for part, us in times.items()
    ).sort_values("window", kind="stable", ignore_index=True)
    table["share_of_wall"] = share(table["us"], table.pop("wall"))
    table["share_of_busy"] = share(table["us"], table.pop("busy")).where(~table["part"].isin(["wall", "idle"]))
    return table


def figures(rank: Rank) -> dict[str, float]:
    """The numbers of one rank's row of `labtrace.Trace.summary`, but for step_us and what a replay tells."""
    parts = temporal(rank).set_index("part")
    gaps, kernels = rank.gaps, rank.kernels
    data_us = float(np.sum(rank.loading.covered(gaps["begin"], gaps["end"])))
    idle_us, known = float(gaps["us"].sum()) or np.nan, kernels["delay"].notna()
    causes = idle_by_cause(kernels, gaps)
    return {
        "wall_us": parts.loc["wall", "us"],
        "step_us": np.nan,
        "idle_of_wall": parts.loc["idle", "share_of_wall"],
        "host_wait_of_idle": causes["host_wait"] / idle_us,
        "launched_of_idle": causes["other"] / idle_us,
        "data_of_idle": data_us / idle_us,
        **{f"{kind}_of_busy": parts.loc[kind, "share_of_busy"] for kind in KINDS},
        "long_delays_of_kernels": (kernels.loc[known, "delay"] > LONG_DELAY_US).mean(),
        "mean_queue": mean_queue(rank) if known.any() else np.nan,
    }


def share(part: pandas.Series, whole: pandas.Series | float) -> pandas.Series:
    """part / whole, NaN where the whole is 0."""
    return part / pandas.Series(whole, index=part.index).replace(0.0, np.nan)


def after_launch(kernels: pandas.DataFrame, gaps: pandas.DataFrame) -> np.ndarray:
    """How long each gap that waited for the host lasted after the call had ended, 0 for other gaps. In microseconds."""
    launched = (kernels["call_begin"] + kernels["call_duration"]).to_numpy()[gaps["next"]]
    return np.where(gaps["cause"] == "host_wait", np.maximum(0.0, gaps["end"] - launched), 0.0)


def idle_by_cause(kernels: pandas.DataFrame, gaps: pandas.DataFrame) -> pandas.Series:
    """The microseconds of these gaps between `kernels` by cause, each of `CAUSES`.

    A gap that waited for the host did so until the end of the call. The rest of it has another cause.
    """
    after = after_launch(kernels, gaps)
    divided = pandas.concat([gaps.assign(us=gaps["us"] - after), gaps.assign(us=after, cause=_cause_after(after))])
    return divided.groupby("cause")["us"].sum().reindex(CAUSES, fill_value=0.0)


def _cause_after(us: np.ndarray) -> np.ndarray:
    return np.where(us < KERNEL_WAIT_US, "kernel_wait", "other")


def idle(rank: Rank) -> pandas.DataFrame:
    """The idle time by cause, of the device and then of every stream."""
    scopes = {"device": (rank.kernels, rank.gaps)}
    scopes |= {f"stream {stream}": (ours, find_gaps(ours)) for stream, ours in rank.kernels.groupby("stream")}
    tables = []
    for scope, (ours, found) in scopes.items():
        us = idle_by_cause(ours, found)
        wall = ours["end"].max() - ours["begin"].min()
        shares = {"share_of_idle": share(us, us.sum()), "share_of_wall": share(us, wall)}
        tables.append(pandas.DataFrame({"scope": scope, "cause": us.index, "us": us, **shares}))
    return pandas.concat(tables, ignore_index=True)


def gaps(rank: Rank, largest: int) -> pandas.DataFrame:
    """The largest gaps of the device, with the host's operators and ranges at these times."""
    found = rank.gaps.nlargest(largest, "us")
    found["later"] = after_launch(rank.kernels, found)
    after = rank.kernels.iloc[found["next"]]
    filler, share_filled = filled_by(rank, found["begin"], found["end"], after["call"])
    return pandas.DataFrame(
        {
            "begin_us": found["begin"].to_numpy(),
            "us": found["us"].to_numpy(),
            "cause": np.where(found["later"] > found["us"] / 2, _cause_after(found["later"]), found["cause"]),
            "filled_by": filler,
            "share_filled": share_filled,
            "operator_at_begin": rank.nested_operators.names_at(found["begin"]),
            "operator_at_end": rank.nested_operators.names_at(found["end"]),
            "range_at_begin": rank.nested_ranges.names_at(found["begin"]),
            "range_at_end": rank.nested_ranges.names_at(found["end"]),
            "next_kernel": after["name"].to_numpy(),
            "launch_delay_us": after["delay"].to_numpy(),
        }
    )


def kernels_by_kind(rank: Rank) -> pandas.DataFrame:
    """One row a kind. A kind that did not occur has a total of 0 and no mean."""
    table = _totals(rank, rank.kernels, ["kind"]).set_index("kind").reindex(KINDS)
    table = table.fillna({"count": 0, "total_us": 0.0, "share_of_busy": 0.0}).astype({"count": int})
    return table.sort_values("total_us", ascending=False, kind="stable").reset_index()


def kernels_by_name(rank: Rank) -> pandas.DataFrame:
    """One row a kernel name."""
    table = _totals(rank, rank.kernels, ["kind", "name"])
    spread = rank.kernels.groupby(["kind", "name"])["duration"].agg(max_us="max", min_us="min", std_us="std")
    return table.join(spread, on=["kind", "name"])


def memory_operations(rank: Rank) -> pandas.DataFrame:
    """One row a kind of memory operation. Operations on pageable memory have rows of their own."""
    ours = rank.kernels[rank.kernels["kind"] == "memory"]
    direction = ours["name"].str.extract(r"^Memcpy (\w+)", expand=False)
    operation = direction.fillna(ours["name"].where(~ours["name"].str.startswith("Memset"), "Memset"))
    pageable = ours["name"].str.contains("Pageable", regex=False)
    return _totals(rank, ours.assign(operation=operation, pageable=pageable), ["operation", "pageable"])


def _totals(rank: Rank, kernels: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    table = kernels.groupby(by)["duration"].agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["share_of_busy"] = share(table["total_us"], busy(rank.kernels["begin"], rank.kernels["end"]))
    return table.sort_values("total_us", ascending=False, ignore_index=True)


def waiting_times(rank: Rank) -> tuple[np.ndarray, np.ndarray]:
    """When each kernel with a known launch began to wait, and when it began to run.

    Raises:
        TraceError: no kernel has a known launch.
    """
    rank.check_launches()
    launched = rank.kernels.dropna(subset="call_begin")
    begin = launched["begin"].to_numpy()
    return np.minimum(launched["call_begin"].to_numpy(), begin), begin  # two clocks may disagree a little


def queue(rank: Rank) -> pandas.DataFrame:
    """The queue's length as a step function."""
    times, waiting = levels(*waiting_times(rank))
    return pandas.DataFrame({"time_us": times, "waiting": waiting, "mean": mean_queue(rank)})


def mean_queue(rank: Rank) -> float:
    """The mean number of waiting kernels between the first and the last GPU activity."""
    launched, began = waiting_times(rank)
    waited = began - np.clip(launched, rank.start, began)  # the first kernel's wait is before the wall time
    return float(np.sum(waited)) / ((rank.stop - rank.start) or np.nan)


def concurrency(rank: Rank) -> pandas.DataFrame:
    """All kernels, then those of each range."""
    kernels = rank.kernels
    tables = [_levels("all", [kernels])]
    in_ranges = kernels[kernels["range"] >= 0]
    in_ranges = in_ranges.assign(range_name=rank.ranges["name"].to_numpy()[in_ranges["range"]])
    for name, ours in in_ranges.groupby("range_name", sort=False):
        tables.append(_levels(name, [times for _, times in ours.groupby("range")]))
    return pandas.concat(tables, ignore_index=True)


def _levels(name: str, times: list[pandas.DataFrame]) -> pandas.DataFrame:
    """How long 0, 1, 2, ... streams were busy, summed over `times`: the kernels of each run of the range."""
    depths, lasting = [], []
    for kernels in times:
        streams = [Union(group["begin"], group["end"]) for _, group in kernels.groupby("stream")]
        begin, end = np.concatenate([one.begin for one in streams]), np.concatenate([one.end for one in streams])
        instants, depth = levels(begin, end)
        depths.append(depth[:-1])
        lasting.append(np.diff(instants))
    us = np.bincount(np.concatenate(depths), weights=np.concatenate(lasting), minlength=1).astype(float)
    columns = {"range": name, "busy_streams": np.arange(len(us)), "us": us, "share_of_wall": us / (us.sum() or np.nan)}
    total = sum(kernels["duration"].sum() for kernels in times)
    return pandas.DataFrame({**columns, "union_us": us[1:].sum(), "sum_us": total})
