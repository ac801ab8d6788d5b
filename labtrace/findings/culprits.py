"""The names behind a verdict: what filled the gaps, in which steps they are, and which kernel takes the time."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events import host
from labtrace.events.dialects import CALLS, PYTORCHS_RANGES, matching
from labtrace.events.rank import Rank
from labtrace.tables.dependencies import WAITING_CALLS, Dependencies
from labtrace.tables.gpu import gaps

MOST_GAPS = 2000  # those left out are short
FILLED = 0.5  # the share of a gap that an event has to fill to be its reason
UNNAMED = "(no single event of the host)"
NOT_THE_HOST = {  # causes of `labtrace.Trace.idle`
    "kernel_wait": "(pauses between kernels)",
    "other": "(launched kernels that had to wait)",
    "unknown": "(kernels whose launch is not recorded)",
}
NEARLY_ALL = 0.9  # of the idle time: in steps that hold so much of it the cause came
LEAST_STEPS = 4  # with fewer nobody can say how often something comes
TAIL, TAIL_SHARE, LEAST_CALLS = 10.0, 0.3, 20  # calls that take so many times the median, and so much of the time
KERNEL_SHARE = 0.5  # of the time of its kind: a kernel that takes more can be named
# Kernels of PyTorch and of its compiler; the others are somebody's own, which no compiler fuses.
PYTORCHS = r"\bat::|elementwise|triton_[a-z]{3}_|reduce_kernel|multi_tensor"


class TopKernel(NamedTuple):
    """The kernel that takes most of the time of its kind.

    Attributes:
        name: whole, as in the recording.
        share: of the time of its kind, from 0 to 1.
        calls: in words, "3 a step" or, where no step is marked, "12 in all".
        slow, slow_share: how many of its calls take over `TAIL` times their median, and their share of its time.
        own: whether neither PyTorch nor its compiler made it.
    """

    name: str
    share: float
    calls: str
    slow: int
    slow_share: float
    own: bool


def of_host(rank: Rank, cause: str) -> str:
    """What of this cause it was, by name, as an insertion behind it, or "" if no name stands for over half of it."""
    if cause == host.LAUNCHES:
        where = _launching_range(rank)
        return f" within {where}" if where else ""
    if cause not in (host.DATA, host.OTHER):
        return ""
    name = _filler(rank)
    if cause == host.OTHER and not name:
        return ", without an event (Python, garbage collection, another program)"
    return f" ({name})" if name and not re.match(rf"data$|{PYTORCHS_RANGES}", name) else ""


def _filler(rank: Rank) -> str:
    """The event of the host that filled the gaps which are over half of the idle time, or ""."""
    table = gaps_by_name(rank)
    us = table[table["kind"] == "host_wait"].set_index("name")["us"].drop(UNNAMED, errors="ignore")
    return str(us.idxmax()) if len(us) and us.max() > table["us"].sum() / 2 else ""


def gaps_by_name(rank: Rank) -> pandas.DataFrame:
    """The gaps by kind, their cause, and by the name of what filled them: count, us, mean_us and max_us."""
    table = gaps(rank, MOST_GAPS).rename(columns={"cause": "kind"})
    names = table["filled_by"].where(table["share_filled"] > FILLED, UNNAMED)
    table["name"] = table["kind"].map(NOT_THE_HOST).fillna(names)
    of_name = table.groupby(["kind", "name"])["us"]
    return of_name.agg(count="size", us="sum", mean_us="mean", max_us="max").reset_index()


def _launching_range(rank: Rank) -> str:
    """The range in which the kernels were launched that ended over half of the idle time, or ""."""
    found = rank.gaps
    names = np.append(rank.ranges["name"].to_numpy(dtype=object), "")
    us = found["us"].groupby(names[rank.kernels["range"].iloc[found["next"]]]).sum()
    return str(us.idxmax()).strip("# ") if us.max() > us.sum() / 2 else ""


def usual_wait(rank: Rank, found: Dependencies) -> str:
    """The call in which the host waits most often, and how often a step: "cudaStreamSynchronize, 24 a step"."""
    copies = set(found.kernels["correlation"][found.copies])
    waiting = matching(rank.operators["name"], WAITING_CALLS) | rank.operators["correlation"].isin(copies)
    times = rank.operators["name"][waiting & rank.operators["category"].isin(CALLS)].value_counts()
    return f"{times.index[0]}, {_a_step(rank, times.iloc[0])}"


def how_often(rank: Rank) -> str:
    """In how many of the steps the GPU was idle: ", once in 12 steps (step 5)", ", in 3 of 12 steps", "" if in most."""
    steps, found = len(rank.steps), rank.gaps
    us = found["us"].groupby(rank.kernels["step"].iloc[found["next"]].to_numpy()).sum().sort_values(ascending=False)
    if steps < LEAST_STEPS or not us.sum():
        return ""
    many = 1 + int(np.argmax(us.cumsum() >= NEARLY_ALL * us.sum()))
    if many == 1:
        return f", once in {steps} steps (step {us.index[0]})"
    return f", in {many} of {steps} steps" if many <= steps / 2 else ""


def top_kernel(rank: Rank, table: pandas.DataFrame) -> TopKernel:
    """The kernel that takes most of the time of those in `table`, which are of one kind."""
    number = pandas.factorize(table["name"])[0]
    us = np.bincount(number, weights=table["duration"])
    lasting = table["duration"][number == us.argmax()]
    name = table["name"][lasting.index[0]]
    slow = lasting[lasting > TAIL * lasting.median()] if len(lasting) >= LEAST_CALLS else lasting[:0]
    own, calls = not re.search(PYTORCHS, name), _a_step(rank, len(lasting))
    return TopKernel(name, us.max() / us.sum(), calls, len(slow), slow.sum() / lasting.sum(), own)


def _a_step(rank: Rank, times: int) -> str:
    return f"{times:,} in all" if rank.steps.empty else f"{times / len(rank.steps):,.3g} a step"


def short(name: str) -> str:
    """A kernel's name without types, arguments and the namespaces around it."""
    plain = re.sub(r"\(anonymous namespace\)::|^void\s+", "", name)
    return re.split(r"[<(]", plain)[0].split("::")[-1].strip() or name
