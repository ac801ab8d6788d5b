"""Run an entry to the speedrun again, and write its record and the ladder of docs/speedrun.md.

    python -m benchmarks.authoring.ladder my_entry.py    # data/speedrun/my_entry.*, if it is a record
    python -m benchmarks.authoring.ladder                # the table of docs/speedrun.md alone

Read the entry first. It races against the last record, with seeds and test scenes that are drawn now.
"""

import argparse
import ast
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torchvision.utils import make_grid

from labcourse.speedrun import Heat, RaceJudge, ladder, race, verdict
from labkit.data.batches import to_uint8
from labkit.data.images import write_picture
from labkit.stamp import stamp

PAGE = Path(__file__).resolve().parents[2] / "docs" / "speedrun.md"
START, END = "<!-- ladder: written by benchmarks/authoring/ladder.py -->\n\n", "\n\n<!-- end of ladder -->"


def run_again(file: Path, device: str) -> None:
    """Has the judge train an entry and the last record with new seeds; writes the entry's record, if it is one."""
    name, text = file.stem, file.read_text(encoding="utf-8")
    check_new(name)  # before the race, which takes long
    judge = RaceJudge(device)
    before = next((record["name"] for record in reversed(ladder.records(device))), None)
    texts = {"entry": text} | ({"record": ladder.source(before)} if before else {})
    heats = race(judge, texts, show=True)
    is_record, reason = verdict(heats["entry"], heats.get("record"))
    print(reason)
    if is_record:
        write(name, text, heats["entry"], before, heats.get("record", []), judge)


def check_new(name: str, folder: Path = ladder.FOLDER) -> None:
    """Raises SystemExit if no record can be written under this name."""
    if not name.isidentifier() or (folder / f"{name}.json").exists():
        raise SystemExit(f"{name}: give the file a new name of letters, digits and underscores, such as my_entry.py")


def write(
    name: str,
    text: str,
    heats: Sequence[Heat],
    before: str | None,
    heats_before: Sequence[Heat],
    judge: RaceJudge,
    folder: Path = ladder.FOLDER,
) -> None:
    """Writes a record onto the ladder."""
    record = {
        "name": name,
        "difference": (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0],
        "board": judge.device,
        "rung": len(ladder.records(judge.device, folder)) + 1,
        "seconds": statistics.median(heat.seconds for heat in heats),
        "test_seed": judge.test_seed,
        "heats": [asdict(heat) for heat in heats],
        "before": before,
        "heats_before": [asdict(heat) for heat in heats_before],
        "stamp": stamp() | {"threads": 1},  # of the processes in which entries train
    }
    apples, oranges = judge.scenes.test_a, to_uint8(judge.pictures[text])
    both = torch.cat([apples[: len(oranges)], oranges])
    write_picture(make_grid(both, nrow=len(oranges), padding=0), folder / f"{name}.webp")
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


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
    """The page with its table as the records are now."""
    before, rest = page.split(START)
    return before + START + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entry", type=Path, nargs="?", help="the entry's file, under the record's new name")
    parser.add_argument("--device", choices=ladder.BOARDS, default="cpu", help="each has a board of its own")
    arguments = parser.parse_args()
    if arguments.entry:
        run_again(arguments.entry, arguments.device)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
