"""The judge: trains an entry with several seeds, in processes of its own, and scores what came out of each.

text  ->  rules.check          is it allowed?
for each seed:
    runner, a process          trains; timed by the kernel, its weights kept at eight moments
    weights  ->  score         fg and bg on test scenes of a seed that the entry never sees

Apples become oranges by colour alone, or nearly so, and a map of colours has few enough numbers to be written into an
entry. So each training sees red, green and blue in an order that the judge draws. An entry that learns is not affected.
"""

from __future__ import annotations

import io
import json
import math
import random
import secrets
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.data.batches import to_float
from labkit.data.fruit import FruitData, fruit
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL, score
from labkit.speedrun import processes, rules
from labkit.speedrun.calibration import Calibrator, calibrator
from labkit.speedrun.entry import SIZE
from labkit.speedrun.guard import BROKEN
from labkit.speedrun.rules import BrokenRule

SEEDS, ENOUGH = 5, 0.8  # of a record: how many, and the share of them that have to reach the goal
EXPORT_S = 120.0
CONSTANTS = 64  # numbers that a program may hold beside its weights
TOO_GOOD = 0.75  # of the way from unchanged apples to the goal: random weights come up to a half of it
RED_GREEN_BLUE = "rgb"


@dataclass(frozen=True)
class Heat:
    """One training of an entry.

    Attributes:
        channels: the order in which it saw red, green and blue, such as "gbr".
        seconds: calibrated seconds on a CPU, wall seconds on a GPU.
        cpu_seconds: as the kernel counts them.
        curve: after a share of the steps, from 0 to 1: the CPU seconds until then, and fg and bg in percent.
    """

    seed: int
    channels: str
    seconds: float
    cpu_seconds: float
    wall_seconds: float
    curve: list[dict[str, float]]

    @property
    def reached(self) -> bool:
        """Whether the end of the run is at the goal, or better."""
        return all(self.curve[-1][name] <= goal for name, goal in GOAL.items())

    @property
    def times(self) -> list[float]:
        """Seconds until each look of the curve, as `seconds` counts them, in proportion to the CPU time until then."""
        return [look["cpu_seconds"] * self.seconds / self.cpu_seconds for look in self.curve]

    def __str__(self) -> str:
        """Its seed, its time, and fg and bg over the run, in a line."""
        curve = " ".join(f"{look['fg']:.1f}/{look['bg']:.1f}" for look in self.curve)
        mark = "reached" if self.reached else "missed"
        return f"seed {self.seed:<10} {self.channels} {self.seconds:7.2f} s  {mark:8} fg/bg {curve}"


@dataclass(frozen=True)
class Verdict:
    """Whether an entry makes a record: `reason` says why, or why not."""

    record: bool
    reason: str


class Judge:
    """Judges entries on one device: "cpu" or "cuda". Every judge draws test scenes of its own.

    Attributes:
        test_seed: of the test scenes; an entry never sees it.
        pictures: by the text of an entry, what its last run makes of the first test scenes, (8, 3, 64, 64) in [-1, 1].
    """

    def __init__(self, device: str = "cpu", limit: float = rules.LIMIT_S) -> None:
        if sys.platform == "win32":
            raise LabkitError("The judge needs Linux or macOS: on Windows, run it in WSL.")
        self.device, self.limit = device, limit
        self.test_seed = secrets.randbelow(2**31)
        self.scenes: FruitData = fruit(n=1, size=SIZE, seed=self.test_seed)
        self.unchanged = score(lambda pictures: pictures, self.scenes)
        self.pictures: dict[str, Tensor] = {}
        self.programs: dict[str, bytes] = {}

    def channels(self, seed: int) -> str:
        """The order of red, green and blue in a training with this seed; an entry cannot know it before."""
        return "".join(random.Random(f"{self.test_seed} {seed}").sample(RED_GREEN_BLUE, 3))

    def heat(self, source: str, seed: int, clock: Calibrator, channels: str | None = None) -> Heat:
        """Trains an entry, given as its text, with one seed; `channels` is as the judge draws it, unless it is given.

        Raises:
            BrokenRule: it broke a rule.
            LabkitError: it stopped with an error of its own.
        """
        rules.check(source)
        channels = channels or self.channels(seed)
        with tempfile.TemporaryDirectory(prefix="speedrun-") as folder:
            place = Path(folder)
            file = place / "entry.py"
            file.write_text(source, encoding="utf-8")
            before = len(clock.portions)
            # A GPU would go on with what it was given while the process stands still, so it is timed without stops.
            stops = clock.measure if self.device == "cpu" else None
            arguments = [str(file), str(seed), self.device, channels]
            ended = processes.run("labkit.speedrun.runner", arguments, place, self.limit, stops)
            _check_ended(ended, place, self.limit)
            kept = {int(path.stem): torch.load(path) for path in place.glob("*.pt")}
            if len(kept) < 2:
                raise BrokenRule("weights", "it ended before its last update")
            if source not in self.programs:
                self.programs[source] = _export(file, place, max(kept))
        program = _program(self.programs[source])
        there = [RED_GREEN_BLUE.index(channel) for channel in channels]
        back = [channels.index(channel) for channel in RED_GREEN_BLUE]

        def translate(pictures: Tensor) -> Tensor:
            translated: Tensor = program(pictures[:, there])
            return translated[:, back]

        curve = []
        for done, (until, weights) in sorted(kept.items()):
            program.load_state_dict({name: value.float() for name, value in weights.items()})
            curve.append({"share": done / max(kept), "cpu_seconds": until, **score(translate, self.scenes)})
        if _shortfall(curve[0]) < 1 + (1 - TOO_GOOD) * (_shortfall(self.unchanged) - 1):
            seen = f"before its first update it has fg {curve[0]['fg']:.1f} and bg {curve[0]['bg']:.1f}"
            raise BrokenRule("random", f"{seen}, much nearer to the goal than unchanged apples")
        self.pictures[source] = translate(to_float(self.scenes.test_a[:8]))
        seconds = clock.calibrated(ended.cpu_seconds, before) if self.device == "cpu" else ended.wall_seconds
        return Heat(seed, channels, seconds, ended.cpu_seconds, ended.wall_seconds, curve)


def _shortfall(scores: Mapping[str, float]) -> float:
    return max(scores[name] / goal for name, goal in GOAL.items())


def _check_ended(ended: processes.Ended, place: Path, limit: float) -> None:
    """Raises `BrokenRule` or `LabkitError` if a process did not come to its regular end."""
    if (place / BROKEN).exists():
        raise BrokenRule(**json.loads((place / BROKEN).read_text(encoding="utf-8")))
    if ended.cpu_seconds > limit or ended.status == -signal.SIGKILL:
        raise BrokenRule("limits", f"{ended.cpu_seconds:.0f} CPU seconds, {ended.wall_seconds:.0f} seconds in all")
    if ended.status != 0:
        raise LabkitError(f"The entry stopped with an error:\n{ended.said}")


def _export(file: Path, place: Path, last: int) -> bytes:
    """The translator as a program. Raises `BrokenRule` if that cannot be done."""
    ended = processes.run("labkit.speedrun.exporting", [str(file), f"{last}.pt"], place, EXPORT_S)
    try:
        _check_ended(ended, place, EXPORT_S)
        return (place / "program.pt2").read_bytes()
    except BrokenRule:
        raise
    except (LabkitError, OSError) as error:
        raise BrokenRule("labkit", f"it cannot be exported: {ended.said.splitlines()[-1:]}") from error


def _program(content: bytes) -> Any:
    """The exported network, which can be called. Raises `BrokenRule` if it holds more than weights."""
    program = torch.export.load(io.BytesIO(content))
    constants = sum(value.numel() for value in program.constants.values() if isinstance(value, Tensor))
    if constants > CONSTANTS:
        raise BrokenRule("weights", f"the network holds {constants} numbers that are not weights")
    return program.module()


def verdict(heats: Sequence[Heat], record: Sequence[Heat] | None) -> Verdict:
    """Whether an entry's heats make a record, beside those of the present record with the same seeds, if there is one.

    Four of five seeds have to reach the goal, and the median time has to be shorter than the record's by more than the
    record differs from itself: its longest time less its shortest.
    """
    reached, needed = sum(heat.reached for heat in heats), math.ceil(ENOUGH * len(heats))
    goal = f"fg {GOAL['fg']:g} and bg {GOAL['bg']:g}"
    if reached < needed:
        return Verdict(False, f"{reached} of {len(heats)} seeds reached {goal}; {needed} are needed.")
    mine = statistics.median(heat.seconds for heat in heats)
    if record is None:
        return Verdict(True, f"the first on this board: {mine:.1f} seconds.")
    theirs = [heat.seconds for heat in record]
    median, noise = statistics.median(theirs), max(theirs) - min(theirs)
    said = f"{mine:.1f} seconds, and the record {median:.1f}, which differs from itself by {noise:.1f}"
    if mine >= median - noise:
        return Verdict(False, f"not faster than the record by more than noise: {said}.")
    return Verdict(True, f"{median / mine:.2f} times as fast as the record: {said}.")


def race(
    judge: Judge,
    texts: Mapping[str, str],
    seeds: Sequence[int],
    on_heat: Callable[[str, Heat], None] = lambda name, heat: None,
) -> dict[str, list[Heat]]:
    """The heats of entries, given as their texts by name: for each seed all of them in turn.

    Raises:
        BrokenRule: one broke a rule.
        LabkitError: one stopped with an error of its own.
    """
    heats: dict[str, list[Heat]] = {name: [] for name in texts}
    for text in texts.values():  # before any of them takes time
        rules.check(text)
    with calibrator() as clock:
        for seed in seeds:
            for name, text in texts.items():
                heats[name].append(judge.heat(text, seed, clock))
                on_heat(name, heats[name][-1])
    return heats
