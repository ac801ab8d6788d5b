"""The verdict on one rank's training: what bounds it and what to try, in a sentence, and the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import pandas

from labtrace.errors import LabError
from labtrace.events import host
from labtrace.events.gaps import KERNEL_WAIT_US
from labtrace.events.intervals import busy
from labtrace.events.rank import Rank
from labtrace.findings import audit, culprits, evidence
from labtrace.findings.candidates import candidates, mostly, second
from labtrace.findings.causes import CAUSES, COMMUNICATION
from labtrace.findings.difference import step_walls, whole_steps
from labtrace.findings.remedies import Remedies
from labtrace.tables import gpu

BOTTLENECKS = ("data", "host", "compute", "memory", "communication")  # of the work
LEAST_SHARE = 0.1  # of the wall time: a part of the work that costs less is not the bottleneck
LEAST_GAIN = 0.05  # of the wall time: less is not worth a sentence
MOST_OUTSIDE = 0.25  # of a step that is alone may be before the GPU's first work or after its last
UNEXPLAINED = 0.3  # of the time the GPU is idle, and no change brings anything: the replay has not seen why
LEAST_TOLD = 0.005  # a smaller share would be told as 0 %
LEAST_LEAD = 2.0  # the ratio of the bottleneck's cost to the next largest
MOSTLY_START_UP = 0.98  # of a recording: what is left tells little
SLOWER = "kernels slower than before"


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
    reason = evidence.outside(rank, ranks)
    try:
        played, sound = play(), True
        doubt = played.doubt
    except LabError as error:
        played, sound, doubt = None, audit.gpu_is_sound(rank), str(error)
    numbers = gpu.figures(rank)
    numbers["step_us"] = whole_steps(whole).median() if (rank.kernels["step"] >= 0).any() else np.nan
    around = _around_the_gpu(whole) if len(step_walls(whole)) == 1 else ""
    costs = played.costs if played else {}
    numbers |= {f"cost_of_{part}": costs.get(part, np.nan) for part in BOTTLENECKS}
    bound, cause, times = bound_by(numbers), "", np.nan
    doubt = doubt.replace(f"{rank.recording.file}: ", "")
    doubt = f"{doubt[:1].upper()}{doubt[1:]}"
    if reason:
        bound, verdict = "unknown", f"{reason}."
    elif played and (played.idle < UNEXPLAINED or played.best >= LEAST_SHARE):
        cause, verdict = _verdict(played, bound, bool(around))
        times = played.rows().set_index("cause")["times_faster_at_most"].get(cause, np.nan)
    else:
        faults = doubt.partition("not sound: ")[2].partition(" (see")[0]
        verdict = f"This recording cannot tell the bottleneck: {faults}."
        if sound:
            bound, verdict = _without_replay(rank, numbers)
    if around:
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
    mostly = f", mostly in {name}" if filled > 0.5 else ""
    percent = "Over 99%" if share > 0.99 else f"{share:.0%}"
    return f"{percent} of the recorded step is before or after the GPU's work{mostly}"


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


def _verdict(played: Remedies, bound: str, of_rest: bool) -> tuple[str, str]:
    """The cause to begin with, and the sentence: what bounds the training, how sure that is, and what to try.

    `of_rest` says that something else comes first, which leaves no room for a second remedy.
    """
    named = candidates(played)
    first, text = named[0].cause, named[0].text()
    brings = 1 - 1 / max(one.times for one in named)
    on_host = [one.cause for one in named if one.cause in played.waits]
    if bound == "several" and brings < LEAST_SHARE and on_host:
        cause = max(on_host, key=lambda one: played.waits[one])
        first = played.shares.drop(["copies", COMMUNICATION], errors="ignore").idxmax()
        text = f"host and GPU are level: no single change brings over {math.ceil(100 * brings)}%. The kernels' "
        text += f"time is {mostly(played.shares[first])} {CAUSES[first].words}; half of that, and no time for "
        text += f"{CAUSES[cause].words}, could bring {played.together(cause, first):.2f}x. torch.compile aims at both"
    elif first == COMMUNICATION and played.mixed:
        text += ", with the waiting for other ranks. Only a recording of all ranks tells these apart"
    else:
        text += f": {named[0].advice} could bring {named[0].worth('this time')}"
        for one in () if of_rest or played.start_up else second(named, played):
            text += f", and {one.without(played.rank)} {one.worth(one.cause)}"
    if (slower := evidence.slower(played.table)) and (times := played.faster(slower.times)) > 1 + LEAST_GAIN:
        first = SLOWER
        text = f"{slower.when} kernels take {slower.ratio:.2f} times as long as at other times: the GPU's clock falls "
        text += "(heat, power), another program is on the GPU, or the inputs differ. Without that, it would be "
        text += f"{times:.2f}x as fast"
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


def _without_replay(rank: Rank, numbers: Mapping[str, float]) -> tuple[str, str]:
    """The bottleneck and a sentence on it, as far as they follow from the times of the kernels alone.

    However fast the host is, the busiest stream takes its time.
    """
    idle = numbers["idle_of_wall"]
    if np.isnan(idle):
        return "unknown", "The kernels on the GPU took no time at all."
    least = max(busy(ours["begin"], ours["end"]) for _, ours in rank.kernels.groupby("stream")) / numbers["wall_us"]
    (second, _), (first, kind) = sorted((numbers[f"{kind}_of_busy"], kind) for kind in gpu.KINDS)[-2:]
    ahead = numbers["long_delays_of_kernels"] > 0.5 and first >= LEAST_LEAD * second
    bound = kind if ahead and least >= 1 - LEAST_SHARE else "unknown"
    kernel = culprits.top_kernel(rank, rank.kernels)
    us = rank.kernels["duration"].groupby(kernel.kinds).sum().sort_values()
    text = f"The GPU is busy {1 - idle:.0%} of the time"
    if idle >= LEAST_SHARE:
        text = f"The GPU waits {idle:.0%} of the time"
        if (launched := numbers["launched_of_idle"]) > 0.5:
            text += f", {mostly(launched)} for launched kernels to begin"
        elif (data := numbers["data_of_idle"]) > 0.5:
            text += f", {mostly(data)} while the host loads data"
        elif (waited := numbers["host_wait_of_idle"]) > 0.5:
            text += f", {mostly(waited)} for the host{culprits.of_host(rank, host.OTHER)}"
        text += f": nothing on the host can bring more than {1 / least:.2f}x" if least > 0.01 else ""
        text += ". Else it is busy"
    are, by = ",", "with "
    if (sending := numbers["communication_of_busy"]) >= LEAST_SHARE:
        sent, hidden = gpu.temporal(rank).set_index("part")["us"][[COMMUNICATION, "compute_and_communication"]]
        text += f", {sending:.0%} with communication, {hidden / sent:.0%} of that beside other kernels"
        us, are, by = us.drop(COMMUNICATION), "; these are", ""
    if kernel.named:
        text += f"{are} {mostly(kernel.share)} {by}{culprits.short(kernel.name)}"
    elif us.sum() > 0:
        text += f"{are} {mostly(us.iloc[-1] / us.sum())} {by}{CAUSES[us.index[-1]].words}"
    return bound, f"{text}."


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
