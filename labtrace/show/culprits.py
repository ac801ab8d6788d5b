"""What took most time, by name: the kernels, and what the host did in the gaps between them."""

from __future__ import annotations

import pandas

from labtrace.trace import Trace

MOST_GAPS = 2000  # of each rank: those left out are short
FILLED = 0.5  # the share of a gap that an event has to fill to be its reason
UNNAMED = "(no single event of the host)"
NOT_THE_HOST = {  # causes of `Trace.idle`
    "kernel_wait": "(pauses between kernels)",
    "other": "(launched kernels that had to wait)",
    "unknown": "(kernels whose launch is not recorded)",
}


def culprits(trace: Trace, of_rank: int | None = None) -> pandas.DataFrame:
    """Kernels and gaps by name, the dearest first: one row a name, of all ranks or of one.

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
    gaps = trace.gaps(MOST_GAPS).rename(columns={"cause": "kind"})
    names = gaps["filled_by"].where(gaps["share_filled"] > FILLED, UNNAMED)
    gaps["name"] = gaps["kind"].map(NOT_THE_HOST).fillna(names)
    of_name = gaps.groupby(["rank", "kind", "name"])["us"]
    gaps = of_name.agg(count="size", us="sum", mean_us="mean", max_us="max").reset_index()
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
