"""Races entries to the speedrun against one another, and writes the ladder: each that beats the one before is a rung.

    python -m tools.ladder SEEDS ENTRY.py ...

SEEDS is how many the judge draws; the entries come in the order of the ladder, the slowest first. For each seed all
train in turn, so that their ratios hold even where the speed of the machine does not. The records are written into
data/speedrun, which has to be without them.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from labkit.commands.speedrun import line
from labkit.speedrun import ladder
from labkit.speedrun.judge import Judge, race, verdict


def climb(n_seeds: int, files: list[Path], folder: Path = ladder.FOLDER) -> None:
    """Races the entries, and writes those that are records."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    judge = Judge()
    seeds = [secrets.randbelow(2**31) for _ in range(n_seeds)]
    heats = race(judge, texts, seeds, on_heat=lambda name, heat: print(line(name, heat), flush=True))
    before: str | None = None
    for name, text in texts.items():
        result = verdict(heats[name], heats[before] if before else None)
        print(f"{name}: {'record' if result.record else 'no record'}: {result.reason}")
        if result.record:
            ladder.submit(name, text, heats[name], before, heats[before] if before else [], judge, folder)
            before = name


if __name__ == "__main__":
    climb(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
