"""The judge: trains an entry with several seeds, each in a new process, and scores the weights that it learns.

for each seed:
    yardstick   how fast is this machine now?
    train       in a process whose clock runs from its start to the last update. It keeps the translator's weights at
                nine moments, and scores fg and bg of each afterwards, on test scenes of a seed that the judge draws
    yardstick

Changing colours is nearly enough to turn apples into oranges, and a map of colours has so few numbers that an entry
could contain them. So the judge draws another order of red, green and blue for each training. An entry that learns is
not affected.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
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
from labcourse.speedrun.entry import SIZE, Entry
from labcourse.speedrun.yardstick import PORTION, Yardstick
from labkit.data.batches import UnpairedData, batches, to_float
from labkit.data.fruit import FruitData, fruit, training_pictures
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL, score
from labkit.models.model import run_network

MOST_COMPRESSED = 1600  # bytes: more than 80 lines of program have
TRAINING_LIMIT_S = 600.0  # CPU seconds; notebook 01's CycleGAN trains for a third of them
RECORD_SEEDS, SHARE_AT_GOAL = 5, 0.8  # how many seeds a record has, and the share that must reach the goal
PORTIONS_EACH_TIME = 12  # of the yardstick, before a training and after it
LOOKS = 8  # parts of a run, after each of which the weights are kept
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
PROGRAM = """
import json, signal, sys
from labkit.processes import end_with_parent
end_with_parent(signal.SIGKILL)  # before PyTorch is loaded, which takes seconds
from labcourse.speedrun import race_judge
race_judge.train(**json.loads(sys.argv[1]))
"""

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
        cpu_seconds: from the start of the process to the last update, as the kernel counts them.
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
        test_seed: of the test scenes.
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
        task = {"seed": seed, "device": self.device, "channels": channels, "test_seed": self.test_seed}
        portions = [self.yardstick() for _ in range(PORTIONS_EACH_TIME)]
        found = _run(source, task | {"limit": self.limit, "started": time.time()})
        portions += [self.yardstick() for _ in range(PORTIONS_EACH_TIME)]
        self.pictures[source] = found.pop("pictures")
        calibrated = found["cpu_seconds"] * PORTION / statistics.median(portions)
        return Heat(seed, channels, calibrated if self.device == "cpu" else found["wall_seconds"], **found)


def _run(source: str, task: dict[str, Any]) -> dict[str, Any]:
    """Has a new process `train` an entry, given as its text, with the arguments in `task`: its result.

    Raises:
        BrokenRule, LabkitError: it did not come to its regular end.
    """
    with tempfile.TemporaryDirectory(prefix="speedrun-") as folder:
        result = Path(folder) / "result.pt"
        Path(folder, "entry.py").write_text(source, encoding="utf-8")
        variables = os.environ | ONE_THREAD | {"PYTHONPATH": str(Path(labkit.__file__).parents[1])}
        command = [sys.executable, "-B", "-c", PROGRAM, json.dumps(task)]
        ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True)
        if ended.returncode == -signal.SIGXCPU:
            raise BrokenRule("limits", f"more than {task['limit']:.0f} CPU seconds")
        if not result.exists():
            said = (ended.stdout + ended.stderr).decode(errors="replace").strip()[-2000:]
            raise LabkitError(f"The entry ended without a result:\n{said}")
        found: dict[str, Any] = torch.load(result)
        return found


def train(seed: int, device: str, channels: str, test_seed: int, limit: float, started: float) -> None:
    """Trains as ``entry.py`` in the present folder says, and scores what it learns.

    ``result.pt`` then has `cpu_seconds`, `wall_seconds` and `curve` of a `Heat`, and `pictures` of a `RaceJudge`.

    Args:
        channels: the order of red, green and blue in its pictures, such as "gbr".
        limit: CPU seconds after which the kernel ends this process, until the last update.
        started: when this process began, as `time.time` counts.

    Raises:
        LabkitError: the file has no function `entry` that returns an `Entry`.
    """
    import resource  # Windows has none

    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    make = runpy.run_path("entry.py", run_name="entry").get("entry")
    entry: Any = make(device) if callable(make) else None
    if not isinstance(entry, Entry):
        raise LabkitError("Define a function entry(device) that returns a labcourse.speedrun.Entry: there is none.")
    translator = entry.model.translator("AtoB")
    kept: dict[int, tuple[float, dict[str, Tensor]]] = {}

    def keep(done: int) -> None:
        weights = {name: value.detach().cpu().clone() for name, value in translator.state_dict().items()}
        kept[done] = _cpu_seconds(), weights

    order = ["rgb".index(channel) for channel in channels]
    data = UnpairedData("fruit", SIZE, *training_pictures(entry.pictures, SIZE, seed), [], [])
    looks = {entry.steps * part // LOOKS for part in range(1, LOOKS + 1)}
    keep(0)
    for done, (a, b) in enumerate(batches(data, entry.batch_size, 0, entry.steps, seed=seed, device=device), start=1):
        if entry.schedule is not None:
            entry.step.scale_lr(entry.schedule(done - 1))  # type: ignore[attr-defined]  # of a labkit.Step
        entry.step(a[:, order], b[:, order])
        if done in looks:
            keep(done)
    wall_seconds = time.time() - started
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def translate(pictures: Tensor) -> Tensor:
        return run_network(translator, pictures[:, order])[:, [channels.index(channel) for channel in "rgb"]]

    scenes, curve = fruit(n=1, size=SIZE, seed=test_seed), []
    for done, (until, weights) in kept.items():
        translator.load_state_dict(weights)
        curve.append({"share": done / entry.steps, "cpu_seconds": until, **score(translate, scenes)})
    seconds = {"cpu_seconds": kept[entry.steps][0], "wall_seconds": wall_seconds}
    torch.save(seconds | {"curve": curve, "pictures": translate(to_float(scenes.test_a[:8]))}, "result.pt")


def _cpu_seconds() -> float:
    """Of this process, and of those that it has started and waited for."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


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
