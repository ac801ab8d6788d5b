"""What took most time, by name: the kernels, and what the host did in the gaps between them."""

from __future__ import annotations

import pandas

from labtrace.findings.culprits import gaps_by_name
from labtrace.trace import Trace


def most_time(trace: Trace, of_rank: int | None = None) -> pandas.DataFrame:
    """Kernels and gaps by name, the most expensive first: one row a name, of all ranks or of one.

    | column | unit | meaning |
    |---|---|---|
    | rank, what | | "kernel" or "gap" |
    | kind | | compute, memory or communication; of a gap its cause, as in `Trace.idle` |
    | name | | of the kernel or, where the GPU waited for the host, of the event that filled most of the gap |
    | count | | |
    | us, mean_us, max_us | microseconds | in all, and of one |
    | share | 0 to 1 | of the sum of the kernels' durations, or of the idle time |
    | times_the_others | | of one rank: us over the median of the other ranks', NaN where none has this name |

    Raises:
        TraceError: there is no GPU activity.
    """
    kernels = trace.kernels().rename(columns={"total_us": "us"})
    gaps = pandas.concat(gaps_by_name(rank).assign(rank=number) for number, rank in trace.ranks.items())
    idle = trace.temporal().query("part == 'idle'").set_index("rank")["us"]
    kernels["share"] = kernels["us"] / kernels.groupby("rank")["us"].transform("sum")
    gaps["share"] = gaps["us"] / gaps["rank"].map(idle)
    table = pandas.concat([kernels.assign(what="kernel"), gaps.assign(what="gap")])
    table = table.sort_values("us", ascending=False, ignore_index=True)
    if of_rank is not None:
        ours, name = table["rank"] == of_rank, ["what", "name"]
        others = table[~ours].groupby(["rank", *name])["us"].sum().groupby(name).median()
        table = table[ours].join(others.rename("others"), on=name)
        table["times_the_others"] = table["us"] / table["others"]
    return table.drop(columns=["share_of_busy", "min_us", "std_us"])
