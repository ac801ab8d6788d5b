"""Races entries to the speedrun against one another, and writes the ladder: each that beats the one before is a rung.

    python -m tools.ladder SEEDS ENTRY.py ...      # race, and write records
    python -m tools.ladder                         # write the table in docs/speedrun.md only

SEEDS is how many the judge draws; the entries come in the order of the ladder, the slowest first. For each seed all
train in turn, so that their ratios hold even where the speed of the machine does not. The records are written into
data/speedrun, which has to be without them.
"""

from __future__ import annotations

import secrets
import statistics
import sys
from pathlib import Path

from labkit.speedrun import ladder
from labkit.speedrun.judge import Judge, race, verdict

PAGE = Path(__file__).resolve().parents[1] / "docs" / "speedrun.md"
START, END = "<!-- ladder: written by tools/ladder.py -->\n\n", "\n\n<!-- end of ladder -->"


def climb(n_seeds: int, files: list[Path], folder: Path = ladder.FOLDER) -> None:
    """Races the entries, and writes those that are records."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    judge = Judge()
    seeds = [secrets.randbelow(2**31) for _ in range(n_seeds)]
    heats = race(judge, texts, seeds, on_heat=lambda name, heat: print(f"{name:16} {heat}", flush=True))
    before: str | None = None
    for name, text in texts.items():
        result = verdict(heats[name], heats[before] if before else None)
        print(f"{name}: {'record' if result.record else 'no record'}: {result.reason}")
        if result.record:
            ladder.submit(name, text, heats[name], before, heats[before] if before else [], judge, folder)
            before = name


def table() -> str:
    """The records in Markdown, the slowest first."""
    rows = ["| rung | seconds | gain | fg, bg | the difference |", "|---|---|---|---|---|"]
    for record in ladder.records():
        name, seconds = record["name"], record["seconds"]
        gain = ladder.gain(record)
        ends = [heat["curve"][-1] for heat in record["heats"]]
        fg, bg = (statistics.median(end[of] for end in ends) for of in ("fg", "bg"))
        times = f"{seconds:.3g} | {f'{gain:.2f}' if gain else ''}"
        rows.append(f"| [{name}](../data/speedrun/{name}.py) | {times} | {fg:.1f}, {bg:.1f} | {record['difference']} |")
    return "\n".join(rows)


def filled(page: str) -> str:
    """The page with its table written afresh."""
    before, rest = page.split(START)
    return before + START + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    if sys.argv[1:]:
        climb(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
