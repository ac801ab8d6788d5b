"""How often the verdict of labtrace names a planted fault, and how near its gain is to the true one, for docs/trust.md.

python -m benchmarks.authoring.planted                   # 20 seeds of each fault, into the page: about 10 minutes
python -m benchmarks.authoring.planted --seeds 1 loader  # what it says of one, and not into the page
"""

import argparse
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas

import labtrace
from labtrace.planted import FAULTS, Planted, write
from labtrace.show.report import report_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trust.md"
START, END = "<!-- planted: written by benchmarks/authoring/planted.py -->\n\n", "\n\n<!-- end of planted -->"
WITHIN = 0.05  # of the true gain


def verdicts(path: Path) -> Iterator[tuple[str, float]]:
    """Sentence, first remedy and reasons, a line each, and the told gain: of each GPU, or the first of all ranks."""
    trace = labtrace.Trace(path)
    if path.is_dir():
        lines = report_text(trace).splitlines()
        found = [(next((line for line in lines if line.endswith(".")), lines[0]), float("nan"))]
    else:
        columns = ["verdict", "first_remedy", "why", "times_faster_at_most"]
        found = [("\n".join(said), gain) for *said, gain in trace.summary()[columns].itertuples(index=False)]
    for said, gain in found:
        number = re.search(r"(\d+\.\d+)x", said.partition("\n")[0])
        yield said, float(number[1]) if number else gain


def judge(planted: Planted) -> dict[str, str | float]:
    """What is said of a recording, told over true gain, and what is wrong with it, "" if nothing. The worst counts."""
    says, never = (re.compile(pattern, re.IGNORECASE).search for pattern in (planted.says, planted.never))
    with warnings.catch_warnings(action="ignore"):
        found, others = [*verdicts(planted.path)], [*verdicts(planted.neighbour)]
    judged = []
    for said, gain in found:
        of_gain = gain / planted.true_gain if planted.fault.gain else float("nan")
        wrong = {
            "not said": not says(said),
            "untrue": never(said),
            "said of the neighbour": any(says(other) for other, _ in others),
            "gain": planted.fault.gain and not abs(of_gain - 1) <= WITHIN,
        }
        judged.append({"wrong": ", ".join(why for why in wrong if wrong[why]), "of_gain": of_gain, "said": said})
    return max(judged, key=lambda one: len(one["wrong"]))


def page_rows(rows: list[dict[str, str | float]]) -> str:
    """The table of docs/trust.md, of a row for each recording."""
    lines = ["| what is wrong | recordings | rightly said | told gain over true gain |", "|---|---|---|---|"]
    for cause, table in pandas.DataFrame(rows).groupby("cause", sort=False):
        right = table[table["wrong"].isin(["", "gain"])]
        gains = right["of_gain"].dropna()
        told = f"{gains.median():.2f} ({gains.min():.2f} to {gains.max():.2f})" if len(gains) else ""
        lines.append(f"| {cause} | {len(table)} | {len(right) / len(table):.0%} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="fault", help="all if none is named")
    parser.add_argument("--seeds", type=int, default=20)
    asked, rows = parser.parse_args(), []
    for name in asked.names or FAULTS:
        for seed in range(asked.seeds):
            with tempfile.TemporaryDirectory() as folder:
                found = judge(planted := write(name, seed, folder))
            rows.append({"cause": planted.fault.cause, **found})
            print(f"{name} {seed} {planted.true_gain:.2f}x {found['wrong'] or 'right'}: {found['said']}", flush=True)
    if not asked.names:
        before, rest = PAGE.read_text(encoding="utf-8").split(START)
        PAGE.write_text(before + START + page_rows(rows) + END + rest.split(END)[1], encoding="utf-8", newline="\n")
