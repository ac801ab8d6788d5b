"""The names behind a verdict: what filled the gaps, where kernels were launched, when that was, and which kernel."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events import host
from labtrace.events.dialects import CALLS, OPERATORS, SYNCHRONISING, fine_kinds, matching
from labtrace.events.host import filled_by
from labtrace.events.intervals import Nested, innermost
from labtrace.events.rank import Rank
from labtrace.findings.causes import HALF
from labtrace.tables.dependencies import WAITING_CALLS, Dependencies, launches_block
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
KERNEL_SHARE = 0.4  # of the time of all kernels: one that takes more is named, or half of its kind's time
LEAST_KERNEL = 0.2  # of the time of all kernels: one that takes less is not named at all
FEW_BLOCKS = 0.5  # blocks for each multiprocessor: with fewer most of the GPU has nothing to do,
LONG_US = 20.0  # which matters in a kernel that is longer: a short one has little work
CONVOLUTION = r"^aten::(?:cudnn|miopen)_convolution|^aten::convolution_backward"
LOADING = r"^(?:data$|enumerate\(DataLoader\))"
TORCHS_OWN = r"(?:^|/)torch/|torchinductor_|nn\.Module: |<built-in"  # the caller says more
# Kernels that a compiler fuses with others. Those that it does not are named, such as a sort or somebody's own.
FUSED = r"elementwise|triton_[a-z]{3}_|reduce_kernel|multi_tensor|CatArrayBatchedCopy"


class TopKernel(NamedTuple):
    """The kernel that takes most of the time.

    Attributes:
        name: whole, as in the recording.
        kinds: what each of the kernels does, as `labtrace.events.dialects.fine_kinds`.
        ours: which of the kernels have this name.
        share: of the time of all kernels, from 0 to 1.
        text: its name, how often a step it runs, whether few of its calls take much of the time, or it has few blocks.
        times: of each of the kernels, how many times as fast it could be: those with few blocks by as many as there is
            room for more, a few slow calls as the others, and without either, twice.
        advice: what to try.
        halved: whether it is that last one.
        named: whether it takes enough of the time, and its name says more than its kind does.
    """

    name: str
    kinds: pandas.Series
    ours: pandas.Series
    share: float
    text: str
    times: np.ndarray
    advice: str
    halved: bool
    named: bool


def of_host(rank: Rank, cause: str) -> str:
    """What of this cause it was, by name, as an insertion behind it, "" if nothing can be named."""
    if cause == host.LAUNCHES:
        where = _launched_within(rank)
        return f" within {where}" if where else ""
    if cause not in (host.DATA, host.OTHER):
        return ""
    if not (rank.operators["category"] == OPERATORS).any():
        return ", which was not recorded (ProfilerActivity.CPU)"
    us = _idle_by_name(rank, without_loading=cause == host.OTHER)
    named, half = us.drop(UNNAMED, errors="ignore"), us.sum() / 2
    most = named.index[0] if len(named) and named.iloc[0] > half else ""
    if cause == host.DATA:
        return f" ({most})" if most and not re.match(LOADING, most) else ""
    if most or (len(named) and us.get(UNNAMED, 0.0) <= half):
        return f" ({most or ' and '.join(named.index[:2])})"
    return ", without an event (Python, garbage collection, another program)"


def _idle_by_name(rank: Rank, without_loading: bool) -> pandas.Series:
    """Microseconds of the largest gaps by the name of what filled them, or of their parts outside of data loading."""
    begin, end = (rank.busy | rank.loading if without_loading else rank.busy).gaps()
    largest = np.sort(np.argsort(end - begin)[-MOST_GAPS:])
    begin, end = begin[largest], end[largest]
    following = np.searchsorted(rank.kernels["begin"], end, side="left").clip(max=len(rank.kernels) - 1)
    names, shares = filled_by(rank, begin, end, rank.kernels["call"].iloc[following])
    table = pandas.Series(end - begin).groupby(np.where(np.array(shares) > FILLED, names, UNNAMED))
    return table.sum().sort_values(ascending=False)


def gaps_by_name(rank: Rank) -> pandas.DataFrame:
    """The gaps by kind, their cause, and by the name of what filled them: count, us, mean_us and max_us."""
    table = gaps(rank, MOST_GAPS).rename(columns={"cause": "kind"})
    names = table["filled_by"].where(table["share_filled"] > FILLED, UNNAMED)
    table["name"] = table["kind"].map(NOT_THE_HOST).fillna(names)
    of_name = table.groupby(["kind", "name"])["us"]
    return of_name.agg(count="size", us="sum", mean_us="mean", max_us="max").reset_index()


def _launched_within(rank: Rank) -> str:
    """The innermost range or Python function around the launches that ended over half of the idle time.

    "" if there is none, or only such as are around nearly all launches.
    """
    largest = rank.gaps.nlargest(MOST_GAPS, "us")
    python = host.python_places(rank)
    places = pandas.concat([rank.ranges, python[~matching(python["name"], TORCHS_OWN)]], ignore_index=True)
    places = places[~places["name"].isin(host.around_all(rank, places))]
    launched = rank.kernels["call_begin"].iloc[largest["next"]].to_numpy()
    next_one = np.append(np.sort(launched), np.inf)[np.searchsorted(np.sort(launched), places["begin"])]
    places = places[next_one <= places["end"]].reset_index(drop=True)
    names = places["name"].to_numpy(dtype=object)
    us: dict[str, float] = {}
    for here, lasted in zip(Nested(places, crossing=True).around(launched), largest["us"], strict=True):
        for name in {names[place] for place in here}:
            us[name] = us.get(name, 0.0) + lasted
    likely = [name for name, lasted in us.items() if lasted > largest["us"].sum() / 2]
    lasting = places.groupby("name")["duration"].sum()
    return min(likely, key=lambda name: lasting[name], default="").strip("# ")


def usual_wait(rank: Rank, found: Dependencies) -> str:
    """The operator or call in which the host waits most often, and when: "aten::nonzero, 12 a step"."""
    if launches_block(found.kernels):
        return "each launch returns after its kernel"
    copies = set(found.kernels["correlation"][found.copies])
    operators = rank.operators[rank.operators["category"] == OPERATORS]
    waiting = matching(rank.operators["name"], WAITING_CALLS) | rank.operators["correlation"].isin(copies)
    calls = rank.operators[waiting & rank.operators["category"].isin(CALLS)]
    around = Nested(operators).names_at(calls["begin"], "")
    calls = calls.assign(by=np.where(around == "", calls["name"], around))
    calls["by"] = calls["by"].replace("aten::_local_scalar_dense", ".item()")
    most = calls["by"].value_counts().index[0]
    steps = np.append(rank.steps["step"].to_numpy(), -1)[innermost(rank.steps, calls["begin"][calls["by"] == most])]
    return f"{most}, {_a_step(rank, pandas.Series(steps))}"


def _a_step(rank: Rank, steps: pandas.Series) -> str:
    """How often a step something comes that came in these steps, of those that have it, and in how many it is more."""
    times = steps[steps >= 0].value_counts()
    if rank.steps.empty or times.empty:
        return f"{len(steps):,} in all"
    often = times[times > times.max() / 2]
    some = len(rank.steps) >= LEAST_STEPS and len(often) <= len(rank.steps) / 2
    return f"{often.mean():,.3g} a step" + (f", in {len(often)} of {len(rank.steps)} steps" if some else "")


def when(rank: Rank) -> str:
    """When the GPU was idle: ", once in 12 steps (step 5)", ", in 3 of 12 steps", ", from step 5 on", "" if in most."""
    steps, found = rank.steps["step"], rank.gaps
    us = found["us"].groupby(rank.kernels["step"].iloc[found["next"]].to_numpy()).sum().sort_values(ascending=False)
    if len(steps) < LEAST_STEPS or not us.sum():
        return ""
    many = us[: 1 + int(np.argmax(us.cumsum() >= NEARLY_ALL * us.sum()))].index
    if len(many) == 1:
        return f", once in {len(steps)} steps (step {many[0]})"
    if len(many) <= len(steps) - 2 and set(steps[-len(many) :]) == set(many):  # the gap before the first is not known
        return f", from step {min(many)} on"
    return f", in {len(many)} of {len(steps)} steps" if len(many) <= len(steps) / 2 else ""


def top_kernel(rank: Rank, kernels: pandas.DataFrame) -> TopKernel:
    """The kernel that takes most of the time, of these, or of those among them that say more than their kind does.

    `kernels` has the columns of `Rank.kernels`.
    """
    kinds = fine_kinds(kernels)
    own = (kinds == "pointwise and other") & ~matching(kernels["name"], FUSED)
    blocks = kernels["blocks_per_sm"].where(kernels["duration"] > LONG_US).groupby(kernels["name"]).transform("median")
    telling = own | (blocks < FEW_BLOCKS)
    us = kernels[telling if telling.any() else kinds != "copies"].groupby("name", sort=False)["duration"].sum()
    name = str(us.idxmax()) if len(us) else ""
    ours, of_call = kernels["name"] == name, kernels["duration"]
    lasting, fills, usual = of_call[ours].sum() or np.nan, blocks[ours].dropna().median(), of_call[ours].median()
    slow = ours & (of_call > TAIL * usual) & (ours.sum() >= LEAST_CALLS)
    text, advice, times = f"{short(name)}, {_a_step(rank, kernels['step'][ours])}", f"a faster {short(name)}", 1 / HALF
    few, tail = fills < FEW_BLOCKS, of_call[slow].sum() / lasting
    if tail > TAIL_SHARE:
        text += f", {slow.sum():,} of its calls for {tail:.0%} of that"
        ours, times = slow, of_call[slow] / usual
    if few:
        text += f", whose blocks fill {fills:.0%} of the multiprocessors"
        times, advice = 1 / fills, f"more blocks for {short(name)}"
    share = lasting / (of_call.sum() or np.nan)
    most = share > KERNEL_SHARE or lasting > of_call[kinds.isin(kinds[ours])].sum() / 2
    faster = pandas.Series(1.0, kernels.index)
    faster[ours] = times
    named = bool(telling.any() and share > LEAST_KERNEL and most)
    return TopKernel(name, kinds, ours, share, text, faster.to_numpy(), advice, not few and tail <= TAIL_SHARE, named)


def searches(rank: Rank, kernels: pandas.DataFrame) -> np.ndarray:
    """Which kernels cuDNN tried, to find the fastest: all but the last of a convolution in which the host waits."""
    operators = rank.operators
    within = operators[matching(operators["name"], CONVOLUTION)]
    waits = operators["begin"][matching(operators["name"], SYNCHRONISING)]
    within = within.iloc[[place for place in np.unique(innermost(within, waits)) if place >= 0]]
    place = pandas.Series(innermost(within, kernels["call_begin"]))
    return ((place >= 0) & place.duplicated(keep="last")).to_numpy()


def short(name: str) -> str:
    """A kernel's name without types, arguments and the namespaces around it."""
    plain = re.sub(r"\(anonymous namespace\)::|^void\s+", "", name)
    return re.split(r"[<(]", plain)[0].split("::")[-1].strip() or name
