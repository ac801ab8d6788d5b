"""The work of the host in a stretch of time: its causes, and the event that filled most of it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas
from numpy.typing import ArrayLike

from labtrace.events.dialects import CALLS, GRAPH_LAUNCHES, LAUNCHING_CALLS, SYNCHRONISING, matching
from labtrace.events.intervals import NOWHERE, Nested, Nesting, Union, innermost
from labtrace.events.rank import Rank

DATA, START_UP, MEMORY, WAITS = "data loading", "start-up", "memory calls", "waiting calls"
COMPILING, BLOCKED = "recompilation", "blocking launches"
GRAPHS, LAUNCHES, OTHER = "graph launches", "launches", "other host work"
MEMORY_CALLS = (
    r"^(?:cuda|hip|cu)(?:Malloc|Free|Host(?:Alloc|Free|Malloc|Register|Unregister)"
    r"|Mem(?:Alloc|Free|Create|Map|Unmap|Release|Address|SetAccess|Host|Pool))"
    r"|^urUSM\w*(?:Alloc|Free)|^zeMem(?:Alloc|Free)"
)
# Programs compiled, graphs instantiated, modules and libraries of kernels loaded.
COMPILED = r"GraphInstantiate|dynamo_timed|compile_inner|frame_compile|backend_compile|^urProgram|^zeModuleCreate"
PREPARING = rf"ModuleLoad|LibraryLoad|{COMPILED}"
START = 0.2  # of the steps: what comes in later ones, twice, is no start-up
LATER = 0.1  # of the time of calls that allocate memory: if less is later, the earlier ones were the first
OF_EACH_STEP = rf"Memcpy|{GRAPH_LAUNCHES}|{SYNCHRONISING}"  # no start-up, even in a recording of one step
START_UP_RATIO, START_UP_US = 100.0, 1e3  # a call is start-up only if it exceeds this, and some this times the median
MOST_RARE = 5  # slow launches, in a recording without steps
LONGEST_LAUNCH_US = 1e3  # host time outside of calls before a launch that is longer is other work, not launching
PYTHON = "python_function"  # category of Python's functions, if the recording has them
OVERHEAD = "overhead"  # of the profiler's own work
AROUND_ALL = 0.97  # of the time and of the launches: a name around so many of them explains nothing


def divide(rank: Rank, begin: np.ndarray, end: np.ndarray, copies: pandas.DataFrame) -> dict[str, np.ndarray]:
    """The host's time before each launch, from `begin` to `end` in microseconds, by cause.

    | cause | meaning |
    |---|---|
    | `DATA` | loading data |
    | `START_UP`, `COMPILING`, `BLOCKED` | see `_rare` |
    | `MEMORY` | calls that allocate and free memory, but for the first ones |
    | `WAITS` | the rest of calls that wait, after the wait is over |
    | `GRAPHS` | calls that launch a graph |
    | `OTHER` | stretches of over a millisecond outside of CUDA's calls: Python, operators on the CPU |
    | `LAUNCHES` | the rest |

    Args:
        copies: the copies that blocked the host, with call_begin and call_end.
    """
    calls = rank.operators
    known = {DATA: rank.loading, **_rare(rank)}
    first, later = _memory(rank, bool(known[START_UP].length))
    known |= {START_UP: known[START_UP] | first, MEMORY: later}
    waiting = calls[matching(calls["name"], SYNCHRONISING)]
    known[WAITS] = Union(waiting["begin"], waiting["end"]) | Union(copies["call_begin"], copies["call_end"])
    of_cuda = calls[calls["category"].isin(CALLS)]
    graphs = of_cuda[matching(of_cuda["name"], GRAPH_LAUNCHES)]
    known |= {GRAPHS: Union(graphs["begin"], graphs["end"]), LAUNCHES: Union(of_cuda["begin"], of_cuda["end"])}
    parts: dict[str, np.ndarray] = {}
    so_far, covered = Union([], []), np.zeros(len(begin))
    for cause, union in known.items():  # of two at the same time the first counts
        so_far |= union
        before, covered = covered, so_far.covered(begin, end)
        parts[cause] = np.maximum(0.0, covered - before)
    rest = np.maximum(0.0, end - begin - covered)
    long = rest > LONGEST_LAUNCH_US
    launches = parts.pop(LAUNCHES) + np.where(long, 0.0, rest)
    return parts | {OTHER: np.where(long, rest, 0.0), LAUNCHES: launches}


def _rare(rank: Rank) -> dict[str, Union]:
    """What a training does once, `START_UP`: captures of graphs, loading, compiling, and calls of over a millisecond

    - the first of a name, if it took far longer than the later ones,
    - CUDA's that were made once or twice, but for copies, waits and launches of graphs: to create the context, and
    - launches that took far longer than others, since a module was loaded: the first of their kernel, or rare ones.

    What comes again in later steps is no start-up: `COMPILING`, or launches that are long for another reason,
    `BLOCKED`.
    """
    calls = rank.operators.sort_values("begin")
    names, by_name = calls["name"], calls.groupby("name")["duration"]
    slow = calls["duration"] > START_UP_US
    far = slow & (calls["duration"] > START_UP_RATIO * by_name.transform("median"))
    once = slow & calls["category"].isin(CALLS) & (by_name.transform("size") <= 2) & ~matching(names, OF_EACH_STEP)
    launches = far & matching(names, LAUNCHING_CALLS) & ~matching(names, OF_EACH_STEP)
    blocked = launches & ~calls.index.isin(rank.kernels.sort_values("call_begin").drop_duplicates("name")["call"])
    blocked &= _comes_again(rank, calls["begin"][blocked]) or (rank.steps.empty and blocked.sum() > MOST_RARE)
    found = (far & ~names.duplicated()) | once | launches | matching(names, PREPARING)
    both = pandas.concat([calls[found & ~blocked], rank.ranges[matching(rank.ranges["name"], PREPARING)]])
    compiled = matching(both["name"], COMPILED)
    compiled &= _comes_again(rank, both["begin"][compiled])
    unions = [Union(each["begin"], each["end"]) for each in (both[~compiled], both[compiled], calls[blocked])]
    return {START_UP: unions[0] | rank.captures, COMPILING: unions[1], BLOCKED: unions[2]}


def _memory(rank: Rank, cold: bool) -> tuple[Union, Union]:
    """The first calls that allocate memory, if hardly any come later, and the other calls that allocate or free it.

    Args:
        cold: whether other start-up was found. Of a recording without several steps it has to be.
    """
    calls = rank.operators[matching(rank.operators["name"], MEMORY_CALLS)]
    several = len(rank.steps) > 1
    start = rank.steps["begin"].quantile(START) if several else rank.kernels["call_begin"].median()
    late = calls["begin"] > start
    rare = calls["duration"][late].sum() < LATER * calls["duration"].sum() and (several or cold)
    first, later = (calls[~late], calls[late]) if rare else (calls[:0], calls)
    return Union(first["begin"], first["end"]), Union(later["begin"], later["end"])


def _comes_again(rank: Rank, begin: pandas.Series) -> bool:
    """Whether events that begin at these times come in two steps or more after the first ones."""
    return len({step for step in innermost(rank.steps, begin) if step >= START * len(rank.steps)} - {-1}) > 1


def filled_by(rank: Rank, begin: ArrayLike, end: ArrayLike, call: ArrayLike) -> tuple[list[str], list[float]]:
    """The name of the event that the launching thread spent most of each gap in, and the share of the gap it covers.

    Operators, calls, ranges, Python's functions and the profiler's own work count, and events of the same name count
    together. Of the names that cover more than half of a gap we take the one that covers least, so the innermost. If
    there is none, we take the name that covers most.

    Args:
        begin, end: of the gaps, in microseconds.
        call: the place in `Rank.operators` of the call that launched the kernel after the gap, or -1 if unknown.
    """
    begin, end, events = np.asarray(begin), np.asarray(end), fillers(rank)
    order = np.argsort(begin)
    next_gap = np.searchsorted(end[order], events["begin"], side="right")
    events = events[np.append(begin[order], np.inf)[next_gap] < events["end"]]  # those in one of the gaps
    # Of two with the same times the one that was written first is within the other: tracers write what has ended.
    events = events[::-1].iloc[np.lexsort((-events["end"][::-1], events["begin"][::-1]))].reset_index(drop=True)
    nested, names = Nested(events, crossing=True), events["name"].to_numpy(dtype=object)
    threads = {tuple(events.loc[rows[0], ["pid", "tid"]]): (names[rows], nesting) for rows, nesting in nested.threads}
    callers = rank.operators[["pid", "tid"]].reindex(call).itertuples(index=False, name=None)  # NaN for unknown
    found = [
        _longest(*threads[caller], since, until) if caller in threads else (NOWHERE, 0.0)
        for since, until, caller in zip(begin, end, callers, strict=True)
    ]
    return [name for name, _ in found], [share for _, share in found]


def fillers(rank: Rank) -> pandas.DataFrame:
    """The events of the host that can be the reason for a gap, with name, begin, end, pid and tid."""
    events = rank.recording.events
    overhead = events[events["category"] == OVERHEAD]
    if len(overhead) and len(launching := rank.operators[["pid", "tid"]].iloc[rank.kernels["call"].clip(lower=0)]):
        overhead = overhead.assign(**launching.mode().iloc[0])  # Kineto writes it without a thread
    named = pandas.concat([rank.ranges, python_places(rank)])
    named = named[~named["name"].isin(around_all(rank, named))]
    columns = ["name", "begin", "end", "pid", "tid"]
    return pandas.concat([each[columns] for each in (rank.nested_operators.events, named, overhead)])


def python_places(rank: Rank) -> pandas.DataFrame:
    """Python's functions, if they were recorded. Built-in ones have no place, but their callers do."""
    events = rank.recording.events
    python = Nested(events[events["category"] == PYTHON]).events
    places = python[~matching(python["name"], "^<built-in")]
    return places if len(places) else python


def around_all(rank: Rank, events: pandas.DataFrame) -> set[str]:
    """The names of events that are around nearly all of the time, and nearly all launches."""
    wall = rank.recorded.length
    lasting = events.groupby("name")["duration"].sum()
    launches = rank.kernels["call_begin"].dropna().to_numpy()
    found = set()
    for name in lasting.index[lasting > AROUND_ALL * wall]:
        ours = events[events["name"] == name]
        union = Union(ours["begin"], ours["end"])
        within = np.mean(union.covered(launches, launches + 0.1) > 0.05) if len(launches) else 1.0
        if union.length > AROUND_ALL * wall and within > AROUND_ALL:
            found.add(str(name))
    return found


def _longest(names: np.ndarray, nesting: Nesting, begin: float, end: float) -> tuple[str, float]:
    """The name that fills this time by the rule of `filled_by`, and the share of the time that it covers.

    `names` are those of a thread's events, in the order they began.
    """
    places = []
    place = int(nesting.at(begin))
    while place >= 0:
        places.append(place)
        place = int(nesting.parent[place])
    first, last = np.searchsorted(nesting.begin, [begin, end], side="right")
    covered: dict[str, float] = defaultdict(float)
    reached: dict[str, float] = defaultdict(lambda: begin)
    for place in [*reversed(places), *range(first, last)]:
        name, until = names[place], min(end, float(nesting.end[place]))
        covered[name] += max(0.0, until - max(reached[name], float(nesting.begin[place])))
        reached[name] = max(reached[name], until)
    if not covered:
        return NOWHERE, 0.0
    most = {name: us for name, us in covered.items() if us > (end - begin) / 2}
    name = min(reversed(most), key=lambda one: most[one]) if most else max(covered, key=lambda one: covered[one])
    return name, covered[name] / (end - begin)
