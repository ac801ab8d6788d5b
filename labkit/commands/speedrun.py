"""The command `labkit speedrun`."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from labkit.errors import LabkitError, check_known
from labkit.speedrun.rules import LIMIT_S


def speedrun(
    entry: Annotated[Path, typer.Argument(help="The file with your entry.")],
    against: Annotated[
        str, Option(help="A record's name, a file, or 'none'.", show_default="the record of this board")
    ] = "",
    seeds: Annotated[
        str, Option(help="How many the judge draws at random; or numbers of your own, with commas.")
    ] = "5",
    submit: Annotated[str, Option(help="The name to write a record under, into data/speedrun.")] = "",
    limit: Annotated[float, Option(help="CPU seconds that a training may take.", min=1)] = LIMIT_S,
    device: Annotated[str, Option(help="cpu or cuda: each has a board of its own.")] = "cpu",
) -> None:
    """Judge an entry to the speedrun: apples to oranges in the fewest seconds.

    Each seed trains in a process of its own, in turn with the present record. The rules are in labkit.speedrun.RULES.
    """
    from labkit.speedrun import ladder
    from labkit.speedrun.judge import SEEDS, Judge, race, verdict

    check_known("device", device, ladder.BOARDS)
    if submit and (against or seeds != str(SEEDS)):
        raise LabkitError(
            f"--submit: a record races against the present one, with {SEEDS} seeds that the judge draws. "
            "Leave out --against and --seeds."
        )
    if submit:
        ladder.check_name(submit)  # before the race, which takes long
    names = [record["name"] for record in ladder.records(device) if record["name"] in ladder.texts()]
    rival = against or (names[-1] if names else "none")
    texts = {"entry": _read(entry)}
    if rival != "none":
        texts["record"] = _read(Path(rival)) if Path(rival).suffix == ".py" else ladder.source(rival)
    numbers = _numbers(seeds)
    judge = Judge(device, limit)
    typer.echo(f"against {rival}, judged on {len(judge.scenes.test_a)} test scenes of seed {judge.test_seed}")
    heats = race(judge, texts, numbers, on_heat=lambda name, heat: typer.echo(f"{name:7} {heat}"))
    result = verdict(heats["entry"], heats.get("record"))
    typer.echo(f"{'record' if result.record else 'no record'}: {result.reason}")
    if submit and result.record:
        before = None if rival == "none" else rival
        typer.echo(ladder.submit(submit, texts["entry"], heats["entry"], before, heats.get("record", []), judge))


def _numbers(seeds: str) -> list[int]:
    """The seeds that the option stands for: so many that nobody can know before, or those that it names."""
    named = seeds.split(",")
    if not all(number.isdecimal() for number in named) or seeds == "0":
        raise LabkitError(f"--seeds {seeds}: give a number of seeds, such as 5, or seeds with commas, such as 0,1,2.")
    return (
        [int(number) for number in named] if len(named) > 1 else [secrets.randbelow(2**31) for _ in range(int(seeds))]
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabkitError(f"{file} cannot be read ({error}). Name a file with Python in it.") from error
