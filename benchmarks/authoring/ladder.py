"""Write the ladder of the speedrun into docs/speedrun.md, after a record has come in.

python -m benchmarks.authoring.ladder
"""

import statistics
from pathlib import Path

from labcourse.speedrun import ladder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "speedrun.md"
START, END = "<!-- ladder: written by benchmarks/authoring/ladder.py -->\n\n", "\n\n<!-- end of ladder -->"


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
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
