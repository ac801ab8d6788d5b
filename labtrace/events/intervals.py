"""Intervals of time: their union, how many overlap, and which one is the innermost.

Begins and ends are NumPy arrays, in microseconds.
"""

from __future__ import annotations

import numpy as np
import pandas
from numpy.typing import ArrayLike

NOWHERE = "(none)"  # in tables, where there is no operator or range


class Union:
    """The time that at least one of some intervals covers, as intervals in order that do not touch.

    Attributes:
        begin, end: of these intervals. An interval of no duration that touches no other stays, and covers no time.
    """

    def __init__(self, begin: ArrayLike, end: ArrayLike) -> None:
        begin, end = np.asarray(begin, dtype=float), np.asarray(end, dtype=float)
        order = np.argsort(begin, kind="stable")
        begin, reached = begin[order], np.maximum.accumulate(end[order])
        new = np.ones(len(begin), dtype=bool)  # where an interval begins after all those before it have ended
        new[1:] = begin[1:] > reached[:-1]
        last = np.ones(len(begin), dtype=bool)
        last[:-1] = new[1:]
        self.begin, self.end = begin[new], reached[last]

    def __or__(self, other: Union) -> Union:
        """The time that one of the two covers, or both."""
        return Union(np.append(self.begin, other.begin), np.append(self.end, other.end))

    def covered(self, begin: ArrayLike, end: ArrayLike) -> np.ndarray:
        """The covered time between each `begin` and its `end`."""
        begin, end = np.asarray(begin, dtype=float), np.asarray(end, dtype=float)
        if not len(self.begin):
            return np.zeros_like(begin)
        # The covered time up to an instant grows with time inside of the intervals, and is constant between them.
        instants = np.stack([self.begin, self.end], axis=1).ravel()
        so_far = np.cumsum(self.end - self.begin)
        heights = np.stack([so_far - (self.end - self.begin), so_far], axis=1).ravel()
        return np.interp(end, instants, heights) - np.interp(begin, instants, heights)

    @property
    def length(self) -> float:
        """The covered time."""
        return float(np.sum(self.end - self.begin))

    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """Begins and ends of the times between its intervals."""
        return self.end[:-1], self.begin[1:]


def busy(begin: ArrayLike, end: ArrayLike) -> float:
    """How long at least one interval was under way: the length of their union, not the sum of their lengths."""
    return Union(begin, end).length


def levels(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times in order, and how many of the intervals are under way from each of them on."""
    times, place = np.unique(np.concatenate([begin, end]), return_inverse=True)
    changes = np.repeat([1, -1], [len(begin), len(end)])
    return times, np.bincount(place, weights=changes, minlength=len(times)).cumsum().astype(int)


class Nesting:
    """Intervals within intervals, as the calls of one thread are: which one is the innermost at each instant.

    `instants` are in order. From each to the next, the interval at that place in `holder` is the innermost, and -1
    is no interval. `parent` is the place of the interval around each one, -1 for none. A call cannot outlive its
    caller: if its recorded end is later, for rounded times or a return that was not recorded, it is cut off at its
    parent's end.

    Args:
        crossing: they are no calls, so that two can overlap in part, and none is cut off. The innermost is then the one
            that began last of those under way, and the parent the one that was it when an interval began.
    """

    def __init__(self, begin: ArrayLike, end: ArrayLike, crossing: bool = False) -> None:
        self.begin, end = np.asarray(begin, dtype=float), np.asarray(end, dtype=float)
        order = np.lexsort((-end, self.begin)).tolist()  # of two that begin together the longer is parent
        # Lists are several times faster than NumPy's single numbers. A last interval, at infinity, closes all others.
        begins, ends, parent = [*self.begin.tolist(), np.inf], [*end.tolist(), np.inf], [-1] * (len(end) + 1)
        instants: list[float] = []
        holder: list[int] = []
        open_ones: list[int] = []
        for number in (*order, len(end)):
            begun = begins[number]
            while open_ones and ends[open_ones[-1]] <= begun:
                instants.append(max(instants[-1], ends[open_ones.pop()]))  # one that crossed it can have ended before
                holder.append(open_ones[-1] if open_ones else -1)
            if open_ones:
                parent[number] = outer = open_ones[-1]
                if ends[outer] < ends[number] and not crossing:
                    ends[number] = ends[outer]
            open_ones.append(number)
            instants.append(begun)
            holder.append(number)
        self.end, self.parent = np.array(ends[:-1], dtype=float), np.array(parent[:-1], dtype=int)
        self.instants, self.holder = np.array(instants[:-1], dtype=float), np.array(holder[:-1], dtype=int)

    def at(self, times: ArrayLike) -> np.ndarray:
        """The place of the innermost interval at each time, or -1 if there is none or the time is NaN."""
        place = np.searchsorted(self.instants, times, side="right") - 1
        return np.where(place >= 0, self.holder[place], -1)

    def own_time(self) -> np.ndarray:
        """The time in each interval outside of its children."""
        inside = self.holder[:-1] >= 0
        return np.bincount(self.holder[:-1][inside], weights=np.diff(self.instants)[inside], minlength=len(self.begin))


class Nested:
    """Host events, which nest in each thread: finds the innermost at a time.

    Among several threads the event that began last counts: in the backward pass the autograd thread works while the
    main thread waits.

    Attributes:
        threads: of each thread the places of its events, and their `Nesting`.
        events: the events, those with an earlier end that `Nesting` cut off.
    """

    def __init__(self, events: pandas.DataFrame, crossing: bool = False) -> None:
        self._names, self._begin = events["name"].to_numpy(dtype=object), events["begin"].to_numpy()
        groups, end = events.groupby(["pid", "tid"], sort=False).indices, events["end"].to_numpy(copy=True)
        self.threads = [(rows, Nesting(self._begin[rows], end[rows], crossing)) for rows in groups.values()]
        for rows, nesting in self.threads:
            end[rows] = nesting.end
        self.events = events.assign(end=end)

    def at(self, times: ArrayLike) -> np.ndarray:
        """The place of the innermost event at each time, -1 for none."""
        times = np.asarray(times, dtype=float)
        found, begun = np.full(len(times), -1), np.full(len(times), -np.inf)
        for rows, nesting in self.threads:
            place = nesting.at(times)
            here = np.where(place >= 0, rows[place], -1)
            later = (here >= 0) & (self._begin[here] > begun)
            found, begun = np.where(later, here, found), np.where(later, self._begin[here], begun)
        return found

    def around(self, times: ArrayLike) -> list[list[int]]:
        """The places of all events around each time, of every thread."""
        found: list[list[int]] = [[] for _ in np.asarray(times)]
        for rows, nesting in self.threads:
            for here, place in zip(found, nesting.at(times), strict=True):
                while place >= 0:
                    here.append(int(rows[place]))
                    place = nesting.parent[place]
        return found

    def names_at(self, times: ArrayLike, nowhere: str = NOWHERE) -> np.ndarray:
        """The name of the innermost event at each time, `nowhere` where there is none."""
        return np.append(self._names, nowhere)[self.at(times)]


def innermost(events: pandas.DataFrame, times: ArrayLike) -> np.ndarray:
    """The place of the innermost host event at each time, -1 for none."""
    return Nested(events).at(times)
