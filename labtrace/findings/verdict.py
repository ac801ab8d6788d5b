"""The verdict on one rank's training: what bounds it and what to try, in a sentence, and the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import pandas

from labtrace.errors import LabError
from labtrace.events import host
from labtrace.events.dialects import COMPUTE
from labtrace.events.gaps import KERNEL_WAIT_US, LONG_DELAY_US
from labtrace.events.intervals import busy
from labtrace.events.rank import Rank
from labtrace.findings import audit, culprits, evidence
from labtrace.findings.difference import step_walls, whole_steps
from labtrace.findings.remedies import PAUSES, RANKS, Remedies
from labtrace.tables import gpu

BOTTLENECKS = ("data", "host", "compute", "memory", "communication")  # of the work
LEAST_SHARE = 0.1  # of the wall time: a part of the work that costs less is not the bottleneck
LEAST_GAIN = 0.05  # of the wall time: less is not worth a sentence
MOST_OUTSIDE = 0.25  # of a step that is alone may be before the GPU's first work or after its last
LEAST_TOLD = 0.005  # a smaller share would be told as 0 %
LEAST_LEAD = 2.0  # the ratio of the bottleneck's cost to the next largest
MOSTLY_WAITS = 0.9  # of what the communication costs: if waits for other ranks cost more, they are the cause
AHEAD = 1.1  # times what other causes on the host cost, waits have to cost to be named
BEHIND_WAITS = 0.7  # of what the launches cost: if waits cost more, launches only show since the host has waited
MOSTLY_START_UP = 0.98  # of a recording: what is left tells little
SLOWER = "kernels slower than before"
MOST_TOLD = 100  # times faster: a larger number tells only that nothing else is there
WAITS_FOR = {  # causes on the host: what the GPU waits for
    host.DATA: "the loading of data",
    host.COMPILING: "recompilation",
    host.BLOCKED: "launches that block",
    host.LAUNCHES: "the launching of kernels",
    host.GRAPHS: "the launching of CUDA graphs",
    host.START_UP: "the start-up of first calls",
    host.MEMORY: "calls that allocate and free memory",
    host.WAITS: "the host, which waits for it in turn",
    host.OTHER: "other work of the host",
}
ON_GPU = {"pointwise and other": "pointwise and other kernels", RANKS: "waits for other ranks"}  # others: as named


def summary(whole: Rank, rank: Rank, ranks: Collection[Rank], play: Callable[[], Remedies]) -> pandas.DataFrame:
    """One row: the verdict, the reasons in words, and the numbers.

    Args:
        whole: the recording.
        rank: its `window`, and
        ranks: those of all ranks of the training.
        play: plays it again, or raises `LabError` if that is not possible.

    Raises:
        TraceError: the GPU's activity is missing.
    """
    rank.check_gpu()
    try:
        played, sound = play(), True
        doubt = played.doubt
    except LabError as error:
        played, sound, doubt = None, not audit.doubts(rank)[1], str(error)
    numbers = _numbers(whole, rank)
    costs = played.costs if played else {}
    numbers |= {f"cost_of_{part}": costs.get(part, np.nan) for part in BOTTLENECKS}
    bound, cause, times = bound_by(numbers), "", np.nan
    doubt = doubt.replace(f"{rank.recording.file}: ", "")
    doubt = f"{doubt[:1].upper()}{doubt[1:]}"
    if reason := evidence.outside(rank, ranks):
        bound, verdict = "unknown", f"{reason}."
    elif played:
        cause, verdict = _verdict(rank, played, bound)
        times = played.rows().set_index("cause")["times_faster_at_most"].get(cause, np.nan)
    else:
        verdict = "This recording cannot tell the bottleneck."
        if sound:
            bound, verdict = _without_replay(rank, numbers)
    if len(step_walls(whole)) == 1 and (around := _around_the_gpu(whole)):
        verdict = f"{around}; of the rest, {verdict[0].lower()}{verdict[1:]}"
        bound = "unknown"
    if rank.recording.gpus > 1 and (worked := numbers["wall_us"] / rank.recording.events["end"].max()) < LEAST_SHARE:
        under = math.ceil(100 * worked) or 1
        bound, verdict = "unknown", f"This GPU was in use for under {under}% of the recording: it bounds nothing."
    why = f"{doubt} {_idle_in_words(numbers)}".strip()
    row = {"bound_by": bound, "verdict": verdict, "first_remedy": cause, "times_faster_at_most": times, "why": why}
    return pandas.DataFrame([row | numbers])


def _around_the_gpu(rank: Rank) -> str:
    """How much of a step that is alone is before the GPU's first work or after its last, and what filled it, or "".

    Of several steps, the gaps between their kernels tell that.
    """
    begin, end = float(rank.steps["begin"].min()), float(rank.steps["end"].max())
    first, last = rank.kernels["call"].iloc[[0, -1]]
    stretches = [(begin, rank.start, first), (rank.stop, end, last)]
    outside = sum(max(0.0, until - since) for since, until, _ in stretches)
    share = outside / (max(end, rank.stop) - min(begin, rank.start))
    if share < MOST_OUTSIDE:
        return ""
    since, until, call = max(stretches, key=lambda one: one[1] - one[0])
    (name,), (filled,) = host.filled_by(rank, [since], [until], [call])
    mostly = f", mostly filled by {name}" if filled > 0.5 else ""
    percent = "Over 99%" if share > 0.99 else f"{share:.0%}"
    return f"{percent} of the recorded step is before the GPU's first work or after its last{mostly}"


def _numbers(whole: Rank, rank: Rank) -> dict[str, float]:
    parts = gpu.temporal(rank).set_index("part")
    gaps, kernels = rank.gaps, rank.kernels
    idle_us, known = float(gaps["us"].sum()), kernels["delay"].notna()
    data_us = float(np.sum(rank.loading.covered(gaps["begin"], gaps["end"])))
    causes = gpu.idle_by_cause(kernels, gaps)
    return {
        "wall_us": parts.loc["wall", "us"],
        "step_us": whole_steps(whole).median() if (rank.kernels["step"] >= 0).any() else np.nan,
        "idle_of_wall": parts.loc["idle", "share_of_wall"],
        "host_wait_of_idle": causes["host_wait"] / (idle_us or np.nan),
        "launched_of_idle": causes["other"] / (idle_us or np.nan),
        "data_of_idle": data_us / (idle_us or np.nan),
        **{f"{kind}_of_busy": parts.loc[kind, "share_of_busy"] for kind in gpu.KINDS},
        "long_delays_of_kernels": (kernels.loc[known, "delay"] > LONG_DELAY_US).mean(),
        "mean_queue": gpu.mean_queue(rank) if known.any() else np.nan,
    }


def bound_by(numbers: Mapping[str, float]) -> str:
    """The bottleneck: "data", "host", "compute", "memory" or "communication", or "several", or "unknown".

    `labtrace.Trace.summary` explains the rule. `numbers` are columns of its table: cost_of_data and so on, shares of
    the wall time from 0 to 1. Shares of the idle and of the busy time play no part, since two causes may hide behind
    each other. Nor do launch delays: with a full queue they are long, and the GPU is busy.
    """
    found = sorted((numbers[f"cost_of_{part}"], part) for part in BOTTLENECKS)
    if np.isnan([cost for cost, _ in found]).any():
        return "unknown"
    (second, _), (first, part) = found[-2:]
    return part if first >= LEAST_SHARE and first >= LEAST_LEAD * second else "several"


def _verdict(rank: Rank, played: Remedies, bound: str) -> tuple[str, str]:
    """The cause to begin with, and the sentence: what bounds the training, how sure that is, and what to try."""
    rows = played.rows().query("cause != @host.START_UP").set_index("cause")
    if RANKS in rows.index and rows["us"][RANKS] > MOSTLY_WAITS * rows["us"]["communication"]:
        rows = rows.drop("communication")
    shares = rows["share_of_wall"]
    # What a change can bring: work on the GPU cannot go altogether, but take half of its time.
    brings = shares.where(rows["times_faster_at_half"].isna(), 1 - 1 / rows["times_faster_at_half"])
    subject = {cause: advice.partition(";")[0] for cause, advice in played.advice.items()}
    first, text = _first(rank, played, bound, rows)
    alone = first == "communication" and played.missing > 0
    level = bound == "several" and brings.max() < LEAST_SHARE
    if level:
        cause = max(played.waits, key=lambda one: shares.get(one, 0.0))
        first = played.shares.drop(["copies", "communication"], errors="ignore").idxmax()
        text = f"host and GPU are level: no single change brings over {math.ceil(100 * brings.max())}%. The kernels' "
        text += f"time is {_most(played.shares[first])} {ON_GPU.get(first, first)}; half of that, and no time for "
        text += f"{WAITS_FOR[cause]}, could bring {played.together(cause, first):.2f}x. torch.compile aims at both"
    elif alone:
        text += ", with the waiting for other ranks. Only a recording of all ranks tells these apart"
    else:
        text += f": {subject.get(first, f'a faster {culprits.short(first)}')} could bring "
        text += _worth(rows.loc[first], "this time") if first in rows.index else f"{played.at_half(first):.2f}x"
    others = shares.index[shares >= LEAST_SHARE].drop([first, host.WAITS], errors="ignore")
    if bound == "compute" and (first in [*COMPUTE, PAUSES] or first not in rows.index):
        others = others.drop(list(COMPUTE), errors="ignore")
    if bound in ("several", "compute") and not level and not alone and len(others):
        text += f", and {subject[others[0]]} {_worth(rows.loc[others[0]], others[0])}"
    if (slower := evidence.slower(rank)) and (times := played.at_first_speed(slower)) > 1 + LEAST_GAIN:
        first = SLOWER
        text = f"from step {slower.step} on kernels take {slower.ratio:.2f} times as long as before: the GPU's clock "
        text += "has fallen (heat, power), another program has come, or the inputs have grown. Without that, it "
        text += f"would be {times:.2f}x as fast"
    if played.start_up > MOSTLY_START_UP:
        first = host.START_UP
        text = f"{played.start_up:.0%} of this recording is start-up, and the rest too little to judge a training by. "
        text += "Leave the first steps out of the recording, with the profiler's wait and warmup"
    elif played.start_up:
        text = f"{played.start_up:.0%} of this recording is start-up; of the rest, {text}"
    if played.doubt:
        text = f"as far as this recording tells, {text}"
    within = max(1, math.ceil(100 * played.off))
    clause = "SIMULATED" if first not in played.waits else "SIMULATED, the host as slow as under the profiler"
    return first, f"{text[0].upper()}{text[1:]} ({clause}; unchanged, the replay is within {within}% of the recording)."


def _first(rank: Rank, played: Remedies, bound: str, rows: pandas.DataFrame) -> tuple[str, str]:
    """The cause to name first, of those in `rows` or a kernel by its name, and what it costs, in words."""
    shares = rows["share_of_wall"]
    waits = {cause: share for cause, share in played.waits.items() if cause in shares.index}
    on_gpu = shares.index.drop([*waits, host.WAITS], errors="ignore")
    idle = f"the GPU waits {played.idle:.0%} of the time"
    waited = shares.get(host.WAITS, 0.0)
    rivals = [cause for cause in waits if cause not in (host.LAUNCHES, host.WAITS)]
    ahead = waited >= max([BEHIND_WAITS * shares[host.LAUNCHES], *(AHEAD * shares[rivals])])
    if played.idle >= LEAST_SHARE and waited >= played.idle / 2 and ahead:
        return (
            host.WAITS,
            f"{idle}, since the host itself waits for it ({culprits.usual_wait(rank, played.found)})",
        )
    if shares.get(PAUSES, 0.0) >= max(LEAST_SHARE, 1 - 1 / rows["times_faster_at_half"].max()):
        return PAUSES, f"{idle}, mostly in the pauses between {len(played.table):,} short kernels"
    halves = rows["times_faster_at_half"].dropna()
    waste = next((cause for cause in shares.index if cause not in [*COMPUTE, PAUSES, host.WAITS]), "")
    if bound == "compute" and shares.get(waste, 0.0) >= max(LEAST_SHARE, (1 - 1 / halves.max()) / 2):
        bound = "host" if waste in waits else "memory"  # it can go altogether, and the kernels cannot
    if bound in ("data", "host") or (bound == "several" and played.idle >= LEAST_SHARE):
        first = host.DATA if bound == "data" else max(waits, key=lambda cause: waits[cause])
        named = f"{WAITS_FOR[first]}{culprits.of_host(rank, first)}{culprits.how_often(rank)}"
        return first, f"{idle}, {_most(waits[first])} for {named}"
    if bound in ("memory", "communication") or (bound == "several" and on_gpu[0] not in [*COMPUTE, PAUSES]):
        first = next(cause for cause in on_gpu if cause not in [*COMPUTE, PAUSES])
        return first, f"{ON_GPU.get(first, first)} cost {shares[first]:.0%} of the time"
    busy = f"the GPU is busy {1 - played.idle:.0%} of the time"
    first = max(halves.index, key=lambda cause: (round(halves[cause], 2), played.shares[cause]))
    kernel = culprits.top_kernel(rank, played.table[played.kinds == first])
    if first == "pointwise and other" and kernel.own and kernel.share > culprits.KERNEL_SHARE:
        tail = kernel.slow_share > culprits.TAIL_SHARE
        slow = f", {kernel.slow:,} of its calls for {kernel.slow_share:.0%} of that" if tail else ""
        share = _most(kernel.share * played.shares[first])
        return kernel.name, f"{busy}, {share} with {culprits.short(kernel.name)}, {kernel.calls}{slow}"
    return first, f"{busy}, {_most(played.shares[first])} with {ON_GPU.get(first, first)}"


def _most(share: float) -> str:
    if share > 0.995:
        return "entirely"
    return f"mostly ({share:.0%})" if share > 0.5 else f"above all ({share:.0%})"


def _worth(row: pandas.Series, kernels: str) -> str:
    """What it brings at most to be without a cause or, where that is no aim, to halve the time of its kernels."""
    if np.isnan(row["times_faster_at_half"]):
        most = row["times_faster_at_most"]
        return f"up to {most:.2f}x" if most < MOST_TOLD else f"over {MOST_TOLD}x"
    return f"{row['times_faster_at_half']:.2f}x by halving {kernels}"


def _without_replay(rank: Rank, numbers: Mapping[str, float]) -> tuple[str, str]:
    """The bottleneck and a sentence on it, as far as they follow from the time in which the GPU was busy.

    However fast the host is, the busiest stream takes its time.
    """
    if np.isnan(numbers["idle_of_wall"]):
        return "unknown", "The kernels on the GPU took no time at all."
    least = max(busy(ours["begin"], ours["end"]) for _, ours in rank.kernels.groupby("stream")) / numbers["wall_us"]
    (second, _), (first, kind) = sorted((numbers[f"{kind}_of_busy"], kind) for kind in gpu.KINDS)[-2:]
    ahead = numbers["long_delays_of_kernels"] > 0.5 and first >= LEAST_LEAD * second
    text = f"The GPU waits {numbers['idle_of_wall']:.0%} of the time"
    if (launched := numbers["launched_of_idle"]) > 0.5:
        text += f", {_most(launched)} for launched kernels to begin"
    bound = kind if ahead and least >= 1 - LEAST_SHARE else "unknown"
    return bound, f"{text}: nothing on the host can bring more than {1 / least:.2f}x."


def _idle_in_words(numbers: Mapping[str, float]) -> str:
    if not numbers["idle_of_wall"] > LEAST_TOLD:
        return "The GPU was hardly ever idle."
    idle = f"The GPU was idle for {numbers['idle_of_wall']:.0%} of the wall time"
    # Without launches, or where the clocks of host and GPU differ, the cause is unknown; a few percent need none.
    if np.isnan(numbers["mean_queue"]) or numbers["idle_of_wall"] < LEAST_SHARE:
        return f"{idle}."
    waited = f"{numbers['host_wait_of_idle']:.0%} of that because the next kernel was not launched yet"
    if numbers["launched_of_idle"] >= LEAST_SHARE:
        waited += f", {numbers['launched_of_idle']:.0%} for over {KERNEL_WAIT_US:g} us after its launch"
    data = numbers["data_of_idle"]
    loading = f", and {data:.0%} while the host loaded data" if data > LEAST_TOLD else ""
    return f"{idle}, {waited}{loading}."
