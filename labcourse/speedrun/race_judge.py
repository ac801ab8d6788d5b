"""The judge: trains an entry with several seeds, each in a new process, and scores the weights that it learns.

for each seed:
    yardstick          how fast is this machine now?
    runner, a process  trains while the judge's clock runs, and only weights come back, from nine moments
    yardstick
    weights  ->  score fg and bg on test scenes of a seed that the entry never sees

Changing colours is nearly enough to turn apples into oranges, and a map of colours has so few numbers that an entry
could contain them. So the judge draws another order of red, green and blue for each training. An entry that learns is
not affected.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import labkit
from labcourse.speedrun.entry import SIZE
from labcourse.speedrun.yardstick import PORTION, Yardstick
from labkit.data.batches import to_float
from labkit.data.fruit import FruitData, fruit
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL, score
from labkit.training.export import load_program

MOST_COMPRESSED = 1600  # bytes: more than 80 lines of program have
TRAINING_LIMIT_S, EXPORT_LIMIT_S = 600.0, 120.0  # CPU seconds; notebook 01's CycleGAN trains for a third of the first
RECORD_SEEDS, SHARE_AT_GOAL = 5, 0.8  # how many seeds a record has, and the share that must reach the goal
PORTIONS_EACH_TIME = 12  # of the yardstick, before a training and after it
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

RULES = {
    "short": f"An entry is one file of at most {MOST_COMPRESSED} bytes, compressed: about 80 lines.",
    "random": "An entry contains no trained weights. Each training sees the colour channels in another order.",
    "data": "An entry learns only from the batches that its step is given. It reads and keeps no other data.",
    "weights": "The judge scores the translator with the weights that it has after the last update, and nothing else.",
    "labkit": "The translator takes pictures of any size, as labkit.translate and labkit.export need it.",
    "limits": "An entry ends within the limit of CPU time.",
}


class BrokenRule(LabkitError):
    """An entry breaks a rule of the speedrun: its name, as in `RULES`, and how."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"rule {rule!r}: {RULES[rule]} Seen: {seen}.")
        self.rule = rule


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


class RaceJudge:
    """Judges entries on one device: "cpu" or "cuda". Every judge draws test scenes of its own.

    Attributes:
        limit: CPU seconds that a training may take.
        test_seed: of the test scenes. An entry never sees it.
        orders: by the seed of a training, the order of red, green and blue in it: another one for each of six seeds.
        pictures: by the text of an entry, what its last run makes of the first test scenes, (8, 3, 64, 64) in [-1, 1].
    """

    def __init__(self, device: str = "cpu", limit: float = TRAINING_LIMIT_S) -> None:
        if sys.platform == "win32":
            raise LabkitError("The judge needs Linux or macOS: on Windows, run it in WSL.")
        self.device, self.limit = device, limit
        self.test_seed = secrets.randbelow(2**31)
        self.scenes: FruitData = fruit(n=1, size=SIZE, seed=self.test_seed)
        self.pictures: dict[str, Tensor] = {}
        self.programs: dict[str, Any] = {}
        drawn = secrets.SystemRandom().sample(["".join(order) for order in permutations("rgb")], 6)
        self.orders: dict[int, str] = defaultdict(cycle(drawn).__next__)
        torch.set_num_threads(1)  # as an entry has it, for the yardstick
        self.yardstick = Yardstick()

    def heat(self, source: str, seed: int) -> Heat:
        """Trains an entry, given as its text, with one seed.

        Raises:
            BrokenRule: it broke a rule.
            LabkitError: it stopped with an error of its own.
        """
        if (size := len(zlib.compress(source.encode(), 9))) > MOST_COMPRESSED:
            raise BrokenRule("short", f"{size} bytes")
        channels = self.orders[seed]
        program = self.programs[source] = self.programs.get(source) or _program(source)
        portions = [self.yardstick() for _ in range(PORTIONS_EACH_TIME)]
        with tempfile.TemporaryDirectory(prefix="speedrun-") as folder:
            task = {"seed": seed, "device": self.device, "channels": channels}
            cpu_seconds, wall_seconds = _run("train", task, source, Path(folder), self.limit)
            kept = {int(path.stem): torch.load(path) for path in Path(folder).glob("*.pt")}
        portions += [self.yardstick() for _ in range(PORTIONS_EACH_TIME)]
        if len(kept) < 2:
            raise BrokenRule("weights", "it ended before its last update")

        def translate(pictures: Tensor) -> Tensor:
            translated: Tensor = program(pictures[:, ["rgb".index(channel) for channel in channels]])
            return translated[:, [channels.index(channel) for channel in "rgb"]]

        curve = []
        for done, (until, weights) in sorted(kept.items()):
            program.load_state_dict({name: value.float() for name, value in weights.items()})
            curve.append({"share": done / max(kept), "cpu_seconds": until, **score(translate, self.scenes)})
        self.pictures[source] = translate(to_float(self.scenes.test_a[:8]))
        seconds = cpu_seconds * PORTION / statistics.median(portions) if self.device == "cpu" else wall_seconds
        return Heat(seed, channels, seconds, cpu_seconds, wall_seconds, curve)


def _program(source: str) -> Any:
    """An entry's translator as a program that can be called."""
    with tempfile.TemporaryDirectory(prefix="speedrun-") as folder:
        _run("export", {}, source, Path(folder), EXPORT_LIMIT_S)
        return load_program(Path(folder) / "program.pt2")


def _run(do: str, task: dict[str, Any], source: str, folder: Path, limit: float) -> tuple[float, float]:
    """Has a process do a task in `folder`, see `labcourse.speedrun.runner`: its CPU seconds and wall seconds.

    Args:
        limit: of CPU seconds.

    Raises:
        BrokenRule, LabkitError: it did not come to its regular end.
    """
    file = folder / "entry.py"
    file.write_text(source, encoding="utf-8")
    command = [sys.executable, "-B", "-m", "labcourse.speedrun.runner"]
    told = json.dumps([do, limit, {**task, "file": str(file)}]).encode()
    own = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(Path(labkit.__file__).parents[1])}
    before = os.times()
    ended = subprocess.run(command, input=told, cwd=folder, env=os.environ | ONE_THREAD | own, capture_output=True)
    spent = [now - then for now, then in zip(os.times(), before, strict=True)]
    cpu_seconds, wall_seconds = spent[2] + spent[3], spent[4]  # the kernel's, of processes that have ended
    said = (ended.stdout + ended.stderr).decode(errors="replace").strip()[-2000:]
    if cpu_seconds > limit:
        raise BrokenRule("limits", f"{cpu_seconds:.0f} CPU seconds")
    if re.search(r"^ModuleNotFoundError: .*\blab(kit|course)\.", said, re.MULTILINE):
        raise BrokenRule("data", said.splitlines()[-1])
    if ended.returncode:
        raise LabkitError(f"The entry stopped with an error:\n{said}")
    return cpu_seconds, wall_seconds


def verdict(heats: Sequence[Heat], record: Sequence[Heat] | None) -> tuple[bool, str]:
    """Whether an entry's heats make a record, and why, or why not.

    They are compared with the heats of the present record with the same seeds, if there is one.

    Four of five seeds have to reach the goal, and the median time has to be shorter than the record's by more than the
    record differs from itself: its longest time less its shortest.
    """
    reached, needed = sum(heat.reached for heat in heats), math.ceil(SHARE_AT_GOAL * len(heats))
    if reached < needed:
        return False, f"{reached} of {len(heats)} seeds reached the goal; {needed} are needed."
    mine = statistics.median(heat.seconds for heat in heats)
    if record is None:
        return True, f"the first on this board: {mine:.1f} seconds."
    theirs = [heat.seconds for heat in record]
    median, noise = statistics.median(theirs), max(theirs) - min(theirs)
    said = f"{mine:.1f} seconds, and the record {median:.1f}, which differs from itself by {noise:.1f}"
    if mine >= median - noise:
        return False, f"not faster than the record by more than noise: {said}."
    return True, f"{median / mine:.2f} times as fast as the record: {said}."


def race(
    judge: RaceJudge, texts: Mapping[str, str], seeds: Sequence[int] | None = None, show: bool = False
) -> dict[str, list[Heat]]:
    """The heats of entries, given as their texts by name: for each seed all of them in turn.

    Args:
        seeds: by default the judge draws as many as a record needs.
        show: prints each heat when it ends.

    Raises:
        BrokenRule: one broke a rule.
        LabkitError: one stopped with an error of its own.
    """
    heats: dict[str, list[Heat]] = {name: [] for name in texts}
    for seed in seeds or [secrets.randbelow(2**31) for _ in range(RECORD_SEEDS)]:
        for name, text in texts.items():
            heats[name].append(judge.heat(text, seed))
            if show:
                print(f"{name:7} {heats[name][-1]}", flush=True)
    return heats
