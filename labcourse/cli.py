"""The command line of the course."""

from pathlib import Path

import typer

import labkit.cli
import labtrace.cli
from labtrace.errors import check_exists, check_known


def speedrun(entry: Path, *, against: str = "", seeds: list[int] | None = None, device: str = "cpu") -> None:
    """Judge an entry to the speedrun: apples to oranges in the fewest seconds.

    Each seed trains in a process of its own, in turn with the present record. labcourse.speedrun.RULES has the rules.

    Args:
        entry: The file with your entry.

    Options:
        against: A record's name, or 'none'. By default, the record of this board.
        seeds: A seed. Repeat the option for others. By default, the judge draws five.
        device: cpu or cuda: each has a board of its own.
    """
    from labcourse.speedrun import ladder
    from labcourse.speedrun.race_judge import RaceJudge, race, verdict

    check_known("device", device, ladder.BOARDS)
    check_exists(entry, "the Python file of your entry")
    names = [record["name"] for record in ladder.records(device) if (ladder.FOLDER / f"{record['name']}.py").exists()]
    rival = against or (names[-1] if names else "none")
    texts = {"entry": entry.read_text(encoding="utf-8")} | ({"record": ladder.source(rival)} if rival != "none" else {})
    judge = RaceJudge(device)
    typer.echo(texts["entry"])  # what is printed is the record's log, which carries its source
    typer.echo(f"against {rival}, judged on {len(judge.scenes.test_a)} test scenes of seed {judge.test_seed}")
    heats = race(judge, texts, seeds, show=True)
    is_record, reason = verdict(heats["entry"], heats.get("record"))
    typer.echo(f"{'record' if is_record else 'no record'}: {reason}")


app = labtrace.cli.application("Judge an entry to the speedrun, the last project of the course.")
labtrace.cli.register(app, speedrun)


def main() -> None:
    """The command `labcourse`."""
    labtrace.cli.run_app(app, "labcourse", labkit.cli.message_of)
