"""Where a step's time goes on a processor, without a GPU: by kind of work, what each kind is worth, and what to try.

Here the shares are exact. Each instant of a step belongs to one operator or to none, so the kinds add up to the step,
and Amdahl's law says what a faster kind of work would bring.
"""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.dialects import first_fitting, matching
from labtrace.events.host import LONGEST_LAUNCH_US
from labtrace.events.intervals import Union, innermost
from labtrace.events.rank import Rank
from labtrace.tables.gpu import share

DATA, OPTIMISER, COMMUNICATION = "data loading", "optimiser", "communication"
PYTHON, OUTSIDE = "Python and dispatch", "work outside of PyTorch"
# Kinds by the innermost operator, aten::addmm or AddmmBackward0; the first pattern that fits counts.
KINDS_OF_WORK = {
    "slow convolutions": r"(?i)slow_?conv|thnn_conv",
    "convolutions": r"(?i)conv(?!ert)",
    "attention": r"(?i)attention|attn|flash",
    "matrix products": r"(?i)(?:\b|_)(?:(?:b?add)?b?mm|dot|mv)(?:backward|_|\b)|(?<!i)(?<!upsample)(?<!upsample_)linear"
    r"|matmul|einsum|gemm|rnn_layer|\b(?:lstm|gru)",
    "normalisation": r"(?i)norm(?!al(?!i))",
    OPTIMISER: r"_fused_|_foreach_",
    "copies": r"(?i)copy|clone|contiguous|\b(?:to|cat|stack)(?:backward|$)",
    COMMUNICATION: r"^c10d::",
    PYTHON: r"^TorchDynamo|Runtime Wrapper Prologue",
    "compiled code": r"^CompiledFunction|^Torch-Compiled Region",
    "pointwise and other": "",
}
LEAST_LEAD = 2.0  # the ratio of the largest kind to the next, from which it dominates
THREADED = ("convolutions", "attention", "matrix products", "normalisation", "compiled code", "pointwise and other")
LONG_OPERATOR_US = 100.0  # without its children: shorter ones gain little from threads
MOST_TAKEN = 0.2  # of the time: if others have the cores for longer, the verdict says so
ALL_BUSY = 0.9  # of the cores: more workers would have none
LONG_STEP, MOST_LONG = 3.0, 0.2  # times a usual step's time; steps that are left out are at most this share of all
MOST_SKEWED = 1.5  # the mean of the steps over their median, above which both are told
OPTIMISERS = r"^(?:Optimizer\.step#|labkit: \S+ optimizer)"  # ranges
TRY = {
    DATA: "more DataLoader workers; pictures decoded and resized once, before the training",
    "slow convolutions": "float32 in place of float64, 3 x 3 in place of unusual shapes; oneDNN has none for this type "
    "or shape, so PyTorch's fallback runs",
    "convolutions": "bf16 autocast where the processor has bf16 units; torch.compile; fewer channels. channels_last "
    "helps some processors: measure",
    "attention": "scaled_dot_product_attention; bf16 where the processor has it",
    "matrix products": "a larger batch; bf16 autocast where the processor has bf16 units",
    "normalisation": "torch.compile, which fuses it with its neighbours",
    OPTIMISER: "fused=True: one operator for all weights",
    "copies": "one memory layout and one type throughout; no clone() or contiguous() that nothing needs",
    COMMUNICATION: "larger buckets, fewer exchanges, 16-bit gradients",
    "pointwise and other": "torch.compile, which fuses them; fewer and larger operators",
    "compiled code": "bf16 autocast where the processor has bf16 units; a smaller network; the recording does not tell "
    "the kernels that torch.compile has made",
    PYTHON: "a larger batch, fewer and larger operators, torch.compile",
    OUTSIDE: "less printing, saving and preparing of data in the loop, no other program on the cores; these are "
    "stretches of over 1 ms without an operator",
}


def processor(rank: Rank) -> pandas.DataFrame:
    """The table that `labtrace.Trace.processor` explains.

    Raises:
        TraceError: it is no recording of a processor alone.
    """
    if not rank.on_cpu:
        raise TraceError(
            f"{rank.recording.file}: recorded with a GPU, where a step takes another time: see temporal()."
        )
    work, steps = typical_work(rank), typical_steps(rank)
    by_name = work.groupby(["kind", "name"], as_index=False)["us"].sum().sort_values("us", ascending=False)
    table = by_name.groupby("kind", sort=False).agg(us=("us", "sum"), most_of_it=("name", "first")).reset_index()
    of_wall = share(table["us"], table["us"].sum())
    table = pandas.DataFrame(
        {
            "kind": table["kind"],
            "us_per_step": table["us"] / (len(steps) or np.nan),
            "us": table["us"],
            "share_of_wall": of_wall,
            "times_faster_at_half": 1 / (1 - of_wall / 2),
            "times_faster_at_most": 1 / (1 - of_wall).replace(0.0, np.nan),
            "most_of_it": table["most_of_it"],
            "try": table["kind"].map(_advice(rank)),
        }
    )
    return table.sort_values("us", ascending=False, ignore_index=True)


def _advice(rank: Rank) -> dict[str, str]:
    """`TRY` without what is there already or cannot be had.

    That is 16 bits, if most of the time of operators with known shapes is spent on such numbers, and more workers, if
    the process keeps all cores busy.
    """
    shaped, stamp = rank.operators[rank.operators["inputs"] >= 0], rank.recording.stamp or {}
    sixteen = pandas.Series(rank.recording.inputs, dtype=object).str.contains("c10::BFloat16|c10::Half")
    already = sixteen.reindex(shaped["inputs"]).to_numpy(dtype=bool)
    busy = stamp.get("cores_busy", 0.0) > ALL_BUSY * stamp.get("cores", np.inf)
    advice = TRY | ({DATA: TRY[DATA].partition("; ")[2]} if busy else {})
    if not shaped["duration"][already].sum() > shaped["duration"].sum() / 2:
        return advice
    return {kind: "; ".join(part for part in text.split("; ") if "bf16" not in part) for kind, text in advice.items()}


def summary(rank: Rank, waits: bool = False) -> pandas.DataFrame:
    """The row of `labtrace.Trace.summary`: the kind of work that most of a step is, and what it is worth, in words.

    Args:
        waits: most of the time in which the rank communicates, it waits for other ranks.
    """
    table, steps = processor(rank), typical_steps(rank)
    if table.empty:
        raise TraceError(f"{rank.recording.file}: no operator in its steps. Record with ProfilerActivity.CPU.")
    first, shares, us = table.iloc[0], [*table["share_of_wall"], 0.0], float(table["us"].sum())
    what = "a step" if len(steps) else "the whole"
    worth = f"Without it, {what} would be up to {first['times_faster_at_most']:.2f}x as fast"
    if first["kind"] not in (DATA, PYTHON, OUTSIDE):  # work that cannot go altogether
        worth = f"In half the time, {what} would be {first['times_faster_at_half']:.2f}x as fast"
    mostly, advice = f", mostly {first['most_of_it']}" if first["most_of_it"] else "", first["try"]
    if waits and first["kind"] == COMMUNICATION:
        mostly, advice = ", mostly to wait for other ranks", "the same work for each rank"
    spends = f"The processor spends {shares[0]:.0%} of the time on {first['kind']}{mostly}."
    taken, asleep, or_else = _without_core(rank)
    if first["kind"] == OUTSIDE and shares[0] / 2 < asleep < 1:
        spends = f"For {asleep:.0%} of the time, the script {or_else}."
        worth = f"Without it, {what} would be up to {1 / (1 - asleep):.2f}x as fast"
        advice = "to read, write and send in other threads or processes"
    if taken > MOST_TAKEN:
        who = "other programs, its own workers or a container's limit had its cores: record again without"
        spends = f"For {taken:.0%} of the time, {who}. {spends}"
    verdict = f"{spends} {worth}. Try {advice.partition(';')[0]}."
    others = [f"{part:.0%} {kind}" for kind, part in zip(table["kind"][1:4], shares[1:], strict=False) if part > 0.05]
    after = f"Then come {', '.join(others)}." if others else ""
    step = _step(steps["duration"] / 1e3) if len(steps) else f"It took {us / 1e3:,.1f} ms."
    row = {
        "bound_by": first["kind"] if shares[0] >= LEAST_LEAD * shares[1] else "several",
        "verdict": verdict,
        "first_remedy": first["kind"],
        "times_faster_at_most": first["times_faster_at_most"],
        "why": " ".join(filter(None, (step, after, _left_out(rank), _cores(rank, table, taken)))),
        "wall_us": us,
    }
    return pandas.DataFrame([row])


def _step(ms: pandas.Series) -> str:
    if ms.mean() > MOST_SKEWED * ms.median():
        return f"A step takes {ms.mean():,.1f} ms on average, but {ms.median():,.1f} in the median."
    return f"A step takes {ms.mean():,.1f} ms."


def typical_steps(rank: Rank) -> pandas.DataFrame:
    """The recorded steps without what happened only once: a slow start, or one long step later, as with a checkpoint.

    Steps are left out if they took over three times as long as each of the others, and are at most a fifth of all. A
    later step that waited for data stays, since with n workers of a DataLoader each nth step may wait.
    """
    steps, took = rank.steps, rank.steps["duration"]
    long = took > LONG_STEP * took.median()
    apart = took[long].min() > LONG_STEP * took[~long].max()
    waited = rank.loading.covered(steps["begin"], steps["end"])[long].sum() > took[long].sum() / 2
    at_the_start = long.head(long.sum()).all()
    once = at_the_start or (long.sum() == 1 and not waited)
    return steps[~long] if apart and once and long.mean() <= MOST_LONG else steps


def typical_work(rank: Rank) -> pandas.DataFrame:
    """The `stretches` of the `typical_steps` or, if no step is marked, of the recording.

    Where a call of an operator stalled, us is what the same one takes in the median of the steps. So it is of stretches
    without an operator if others had the cores: or else a script may sleep there, or save, in every fifth step.
    """
    work, steps = stretches(rank), typical_steps(rank)
    inside = Union(steps["begin"], steps["end"]).covered(work["begin"], work["end"]) > work["us"] / 2
    work = work[inside] if len(steps) else work
    of_step = work.groupby([innermost(steps, work["begin"]), "name"])["us"]
    same = [work["name"], of_step.transform("size"), of_step.cumcount()]  # in steps that run the operator as often
    usual = work.groupby(same)["us"].transform("median")
    stalled = work["us"] > np.maximum(LONG_STEP * usual, usual + LONGEST_LAUNCH_US)
    stalled &= (work["name"] != "") | (_without_core(rank)[0] > MOST_TAKEN)
    stalled &= ~work["kind"].isin([DATA, COMMUNICATION]) & (stalled.groupby(same).transform("mean") <= MOST_LONG)
    return work.assign(us=work["us"].where(~stalled, usual))


def _left_out(rank: Rank) -> str:
    """What `typical_steps` and `typical_work` leave out, in words."""
    steps, work, parts = rank.steps.drop(typical_steps(rank).index), typical_work(rank), []
    if len(steps):
        part = steps["duration"].sum() / rank.steps["duration"].sum()
        parts.append(f"Left out: {len(steps)} of {len(rank.steps)} steps, {part:.0%} of the recorded time.")
    stalls = (work["end"] - work["begin"] - work["us"])[lambda us: us > 0]
    if len(stalls):
        part, longest = stalls.sum() / (work["us"].sum() + stalls.sum()), work.loc[stalls.idxmax()]
        such_as = longest["name"] or longest["kind"]
        parts.append(f"Left out: {len(stalls)} stalls, such as in {such_as}, {part:.0%} of the time.")
    return " ".join(parts)


def _without_core(rank: Rank) -> tuple[float, float, str]:
    """What `labtrace.watch` measured: shares of the time in which the script did not work, and what it did meanwhile.

    In the first, it was ready to work, but others had the cores. Where the system does not tell, these are operators
    without a core, since they do not sleep. In the second it waited for anything but a core, data and other ranks.
    """
    stamp, work = rank.recording.stamp or {}, stretches(rank)
    of_all = work.groupby("kind")["us"].sum() / work["us"].sum()
    waits, waited = of_all.reindex([DATA, COMMUNICATION]).sum(), stamp.get("thread_waited")
    asleep = 1 - waits - stamp.get("thread_worked", 1.0) - (waited or 0.0)
    does = "sleeps, or waits for a file, the network or another process"
    if waited is None:
        worked = 1 - waits - of_all.get(OUTSIDE, 0.0)
        return worked - stamp.get("cores_busy", worked), asleep, f"{does}, or other programs have the cores"
    return waited, asleep, f"{does}, and no other process uses the cores"


def _cores(rank: Rank, table: pandas.DataFrame, taken: float) -> str:
    """What `labtrace.watch` measured, over all steps. No recording tells how many threads worked inside an operator."""
    stamp, kind, work = rank.recording.stamp or {}, table["kind"][0], stretches(rank)
    if "cores_busy" not in stamp:
        return ""
    busy, threads, cores = stamp["cores_busy"], stamp["threads"], stamp["cores"]
    text = f"The process kept {busy:.1f} of {cores} cores busy (torch.get_num_threads() is {threads})."
    us = work["us"][work["kind"] == kind]
    if taken < MOST_TAKEN and threads < cores and kind in THREADED and us[us > LONG_OPERATOR_US].sum() > us.sum() / 2:
        text += f" OMP_NUM_THREADS={cores} lets operators use all of them."
    return text


def stretches(rank: Rank) -> pandas.DataFrame:
    """The steps, cut wherever another operator is the innermost: begin, end and us, the operator's name and kind.

    Without marked steps, the whole recording is cut.
    """
    events, operators = rank.recording.events, rank.operators
    updates = events[matching(events["name"], OPTIMISERS)]
    updates = Union(_after_closures(updates, operators), updates["end"])
    sending = events[matching(events["name"], "^gloo:")]
    sending = Union(sending["begin"], sending["end"])
    edges = [operators["begin"], operators["end"]]
    edges += [edge for union in (rank.loading, updates, sending, rank.recorded) for edge in (union.begin, union.end)]
    instants = np.unique(np.concatenate(edges))
    begin, end = instants[:-1], instants[1:]

    def within(union: Union) -> np.ndarray:  # more than half, since rounding may cover a little of those outside
        return union.covered(begin, end) > (end - begin) / 2

    inside = within(rank.recorded)
    begin, end = begin[inside], end[inside]
    names = pandas.Series(rank.nested_operators.names_at((begin + end) / 2, ""), dtype=object)
    kinds = first_fitting(names, KINDS_OF_WORK)
    kinds[names == ""] = PYTHON
    long = end - begin > LONGEST_LAUNCH_US
    kinds[((names != "") | long) & within(updates)] = OPTIMISER
    kinds[(names == "") & within(sending)] = COMMUNICATION
    kinds[(kinds == PYTHON) & long] = OUTSIDE
    kinds[within(rank.loading)] = DATA
    return pandas.DataFrame({"kind": kinds, "name": names, "begin": begin, "end": end, "us": end - begin})


def _after_closures(updates: pandas.DataFrame, operators: pandas.DataFrame) -> np.ndarray:
    """When each update begins: after the last backward pass in it, as `optimizer.step(closure)` runs a whole step."""
    ended = np.sort(operators["end"][matching(operators["name"], "^autograd::engine")])
    before = np.searchsorted(ended, updates["end"], side="right") - 1
    return np.maximum(updates["begin"], np.append(ended, -np.inf)[before])
