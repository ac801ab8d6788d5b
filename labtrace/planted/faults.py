"""Trainings with a known fault, and each of them without it: the cause and the true gain are facts.

All are the same loop, and faults.toml says what is different in each, and what a verdict has to say of it. training.py
has what a training can do there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labtrace.errors import check_known
from labtrace.planted import simulation
from labtrace.planted.simulation import FIRST, PAUSE_US, SECOND
from labtrace.planted.training import Training

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Fault:
    """A training with and without a fault, and what a verdict has to say of it: a table of faults.toml.

    Attributes:
        cause: of what kind the fault is: few words, among which a student can choose.
        words: the fault.
        says: a pattern that ignores case. It matches the verdict, its first remedy or its reasons, which are a line
            each, and not those on the neighbour, the same training without the fault.
        never: matches none of them, since it would be untrue.
        gain: whether the gain that the verdict tells has to be the true one. Of work that cannot go it tells the gain
            of halving it, so the neighbour has half of it.
        fault, without: what a process does before a step with and without the fault: methods, and their arguments.
        first, every: the steps in which it does so: the first one, and each so many; 0 for the three of `some`.
        trains: whether both passes and the optimiser follow.
        reads: whether a step ends with `.item()`, as if the loss were logged.
        ranks: how many. The recording is a folder, and of its report the first sentence counts,
        alone: or the verdict on the file of the first rank.
        process, names: arguments of `Process`, and what it draws from.
    """

    cause: str
    words: str
    says: str
    never: str = "(?!)"
    gain: bool = False
    fault: Mapping[str, float] = field(default_factory=dict)
    without: Mapping[str, float] = field(default_factory=dict)
    first: int = 0
    every: int = 1
    trains: bool = True
    reads: bool = False
    ranks: int = 1
    alone: bool = False
    process: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, list] = field(default_factory=dict)

    def simulate(self, seed: str, planted: bool, behind: Behind) -> list[Training]:
        """Each rank's process, after all steps, with the fault or without it, and with the cause that is behind it."""
        names, process = TABLE["names"] | self.names, {**behind.process, **self.process}
        ranks = [Training(seed, rank, self.ranks, names, **process) for rank in range(self.ranks)]
        steps = ranks[0].steps
        chosen = range(self.first, steps, self.every) if self.every else ranks[0].some
        for step in range(steps):
            with ExitStack() as marks:
                for p in ranks:
                    p.step = step
                    marks.enter_context(p.within(f"ProfilerStep#{step}"))
                    for act, argument in behind.acts.items():
                        getattr(p, act)(argument)
                    for act, argument in (self.fault if planted else self.without).items():
                        if step in chosen:
                            getattr(p, act)(argument)
                    if self.trains:
                        p.train(optimiser=self.ranks == 1)
                if self.ranks > 1:
                    exchange(ranks)
                if self.reads or behind.acts:
                    ranks[0].read()
        for p in ranks:
            p.wait("cudaDeviceSynchronize")
        return ranks


def exchange(ranks: list[Training]) -> None:
    """A collective that all ranks leave together. Then the optimiser steps, and the loss is logged."""
    for p in ranks:
        p.call("cudaLaunchKernel")
    ready = [p.begins[FIRST][-p.early] if p.early else p.free[FIRST] + PAUSE_US for p in ranks]
    begins = [max(p.now + simulation.LATENCY_US, one) for p, one in zip(ranks, ready, strict=True)]
    end = max(begins) + ranks[0].times(ranks[0].sending)
    for p, begin in zip(ranks, begins, strict=True):
        p.free[FIRST] = max(p.free[FIRST], p.run(ALL_REDUCE, begin, end - begin, SECOND))
        p.operator("aten::_fused_adamw_", simulation.ADAM, 2 * p.kernel_us)
        p.read()


@dataclass(frozen=True)
class Behind:
    """A second cause, which is as large without the fault, and smaller than it: a table of faults.toml.

    Attributes:
        cause, words: as those of a `Fault`.
        acts: what a process does before each step, as `Fault.fault`. A step then ends with `.item()`.
        process: arguments of `Process`.
    """

    cause: str = ""
    words: str = ""
    acts: Mapping[str, float] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planted:
    """A recording with a fault, and what is true of it.

    Attributes:
        path, neighbour: the recordings with and without the fault, a file or, of several ranks, a folder.
        fault: what is wrong.
        behind: what is wrong in both recordings, if anything.
        true_gain: how many times as long as the neighbour's the recording's wall time is, at least 1. Of start-up it is
            1, since a training has that once, in however many steps.
        says, never: patterns as those of the fault, with the names that were drawn.
    """

    path: Path
    neighbour: Path
    fault: Fault
    behind: Behind
    true_gain: float
    says: str
    never: str


def write(name: str, seed: int, folder: Path | str, behind: str = "") -> Planted:
    """Writes a recording with this fault, and its neighbour without it. Their names do not give the fault away.

    Args:
        name: of `FAULTS`.
        seed: of all sizes and names in it.
        folder: for recording.json.gz and neighbour.json.gz or, of several ranks, for folders of these names.
        behind: of `BEHIND`, a second cause in both recordings, or "" for none.

    Raises:
        LabError: the fault or the second cause is unknown, or a file cannot be written.
    """
    check_known("name", name, FAULTS)
    check_known("behind", behind, BEHIND)
    fault, second, walls, paths = FAULTS[name], BEHIND[behind], [], []
    for called in ("recording", "neighbour"):
        first, *others = fault.simulate(f"{name} {seed}", called == "recording", second)
        walls.append(first.wall_us())
        paths.append(Path(folder) / (called if others and not fault.alone else f"{called}.json.gz"))
        for p in [] if fault.alone else others:
            p.save(paths[-1] / f"rank{p.rank}.json.gz")
        first.save(paths[-1] / "rank0.json.gz" if others and not fault.alone else paths[-1])
    culprit = max(re.findall(r"\w+", first.culprit), key=len, default="")
    culprit = rf"\brank {first.faulty}\b" if fault.ranks > 1 else culprit
    words = {"CULPRIT": culprit, **TABLE["wordings"]}
    says, never = (re.sub("|".join(words), lambda one: words[one[0]], text) for text in (fault.says, fault.never))
    gain = 1.0 if fault.cause == "start-up" else max(1.0, walls[0] / walls[1])
    return Planted(paths[0], paths[1], fault, second, gain, says, never)


TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
FAULTS = {name: Fault(**table) for name, table in TABLE["faults"].items()}
BEHIND = {"": Behind()} | {name: Behind(**table) for name, table in TABLE["behind"].items()}
