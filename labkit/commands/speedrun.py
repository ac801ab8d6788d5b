"""The command `labkit speedrun`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from labkit.errors import LabkitError

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.speedrun.judge import Heat


def speedrun(
    entry: Annotated[Path, typer.Argument(help="The file with your entry.")],
    against: Annotated[
        str, Option(help="A record's name, a file, or 'none'.", show_default="the record of this board")
    ] = "",
    seeds: Annotated[
        str, Option(help="Numbers with commas; or how many, drawn at random, which a record needs: 5.")
    ] = "5",
    submit: Annotated[str, Option(help="The name to write a record under, into data/speedrun.")] = "",
    limit: Annotated[float, Option(help="CPU seconds that a training may take.", min=1)] = 600.0,
    device: Annotated[str, Option(help="cpu or cuda: each has a board of its own.")] = "cpu",
) -> None:
    """Judge an entry to the speedrun: apples to oranges in the fewest seconds.

    Each seed trains in a process of its own, in turn with the present record. The rules are in labkit.speedrun.RULES.
    """
    if sys.platform == "win32":
        raise LabkitError("The judge needs Linux or macOS: on Windows run it in WSL.")
    from labkit.speedrun import ladder
    from labkit.speedrun.judge import Judge, drawn, race, verdict

    names = [record["name"] for record in ladder.records(device)]
    rival = against or (names[-1] if names else "none")
    texts = {"entry": _read(entry)}
    if rival != "none":
        texts["record"] = _read(Path(rival)) if Path(rival).suffix == ".py" else ladder.source(rival)
    if submit and not seeds.isdecimal():
        raise LabkitError(f"--seeds {seeds}: a record is made with seeds that the judge draws. Leave the option out.")
    numbers = drawn(int(seeds)) if seeds.isdecimal() else [int(seed) for seed in seeds.split(",")]
    judge = Judge(device, limit)
    typer.echo(f"judged on {len(judge.scenes.test_a)} test scenes of seed {judge.test_seed}")
    heats = race(judge, texts, numbers, on_heat=lambda name, heat: typer.echo(_line(name, heat)))
    result = verdict(heats["entry"], heats.get("record"))
    typer.echo(f"{'record' if result.record else 'no record'}: {result.reason}")
    if submit and result.record:
        before = None if rival == "none" else rival
        typer.echo(ladder.submit(submit, texts["entry"], heats["entry"], before, heats.get("record", []), judge))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabkitError(f"{file} cannot be read ({error}). Name a file with Python in it.") from error


def _line(name: str, heat: "Heat") -> str:
    """A heat in a line: its time, and fg and bg over the run."""
    curve = "  ".join(f"{look['fg']:.1f}/{look['bg']:.1f}" for look in heat.curve)
    mark = "reached" if heat.reached else "missed"
    return f"{name:7} seed {heat.seed:<11} {heat.seconds:7.2f} s  {mark:8} fg/bg {curve}"
