"""The commands that measure: `labkit profile`, `report`, `speedups`, `compare` and `speedrun`."""

import contextlib
import importlib.util
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import labkit
from labkit.commands import Setup, names_in
from labkit.errors import LabkitError, check_known
from labkit.files import check_folder


def profile(
    *, out: Path, data: str = "fruit", steps: int = 20, speedups: str = "", shapes: bool = False, **model_options: Any
) -> None:
    """Record training steps on noise: print where the time goes by operator, and write the trace.

    Options:
        out: The trace to write, .json or .json.gz.
        data: Whose networks and size: 'fruit', or else photographs.
        steps: Steps to record, after three that warm up.
        speedups: Names, with commas (bf16,batched).
        shapes: Record the inputs' shapes, too: for FLOP/s by operator.
    """
    from labkit.measure import record as recording

    setup = Setup(data, **model_options)
    network = setup.make()
    recording.check_writable(out)
    batch = setup.noise()
    profiler = recording.profiled(setup.step(network, names_in(speedups)), batch, steps, shapes)
    own_time = "self_device_time_total" if batch[0].is_cuda else "self_cpu_time_total"
    typer.echo(profiler.key_averages().table(sort_by=own_time, row_limit=20))
    typer.echo(f"{recording.export(profiler, out)}: {steps} steps; open it in ui.perfetto.dev or with HTA")


def report(traces: list[Path], *, out: Path | None = None, as_json: bool = False) -> None:
    """Say what bounds a trace and what to try, and write a page with its figures.

    Args:
        traces: Trace files, or folders with a file of each rank.

    Options:
        out: The page to write. By default, beside the first trace and under its name.
        as_json: Print the verdict and the tables as one JSON object, and write no page.
    """
    opened = {path.name: labkit.Trace(path) for path in traces}
    if as_json:
        typer.echo(json.dumps(labkit.show.report_data(opened)))
        return
    for name, trace in opened.items():
        with contextlib.suppress(labkit.TraceError):  # recorded on a CPU: the page says what it lacks
            typer.echo("\n".join(f"{name}: {why}" for why in trace.summary()["why"]))
    name = traces[0].name.removesuffix(".gz").removesuffix(".json")
    typer.echo(labkit.show.trace_report(opened, out or traces[0].with_name(f"{name}.html")))


def speedups() -> None:
    """List the speed-ups: how each differs from the baseline, what it should improve, and what it needs."""
    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    improves {row['improves']}; needs {row['needs']}")
        if names := row["not_with"]:
            typer.echo(f"    not together with {names}")


def compare(
    stacks: list[str] | None = None,
    *,
    out: Path = Path("out", "compare"),
    data: str = "fruit",
    **model_options: Any,
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline.

    Args:
        stacks: Each a speed-up, or several with commas: bf16 bf16,batched. Without any, all that can save time here.

    Options:
        out: Folder for compare.json and compare.html. Older ones are replaced.
        data: Whose networks and size: 'fruit', or else photographs.
    """
    setup = Setup(data, **model_options)
    check_folder(out)

    def maker(*names: str) -> Callable[[], "labkit.Step"]:
        return lambda: setup.step(setup.make(), list(names))

    left_out: list[str] = []
    if not stacks:
        stacks, left_out = labkit.measure.candidates(setup.make)
    makers = {"baseline": maker(), **{stack: maker(*names_in(stack)) for stack in stacks}}
    table = labkit.compare(makers, setup.noise())
    typer.echo("\n".join([*left_out, *(f"{name}: {row['verdict']}, {row['why']}" for name, row in table.iterrows())]))
    if labkit.ranks.number() == 0:
        typer.echo(labkit.measure.save(table, out / "compare.json"))
        if importlib.util.find_spec("plotly"):
            typer.echo(labkit.show.comparison_report(table, out / "compare.html"))


def speedrun(
    entry: Path, *, against: str = "", seeds: list[int] | None = None, submit: str = "", device: str = "cpu"
) -> None:
    """Judge an entry to the speedrun: apples to oranges in the fewest seconds.

    Each seed trains in a process of its own, in turn with the present record. The rules are in labkit.speedrun.RULES.

    Args:
        entry: The file with your entry.

    Options:
        against: A record's name, or 'none'. By default, the record of this board.
        seeds: A seed. Repeat the option for others. By default, the judge draws five.
        submit: The name to write a record under, into data/speedrun.
        device: cpu or cuda: each has a board of its own.
    """
    from labkit.speedrun import ladder
    from labkit.speedrun.judge import SEEDS, Judge, race, verdict

    check_known("device", device, ladder.BOARDS)
    if submit and (against or seeds):
        raise LabkitError("--submit: a record races against the last one, with seeds that the judge draws.")
    if submit:
        ladder.check_name(submit)  # before the race, which takes long
    numbers = seeds or [secrets.randbelow(2**31) for _ in range(SEEDS)]
    names = [record["name"] for record in ladder.records(device) if (ladder.FOLDER / f"{record['name']}.py").exists()]
    rival = against or (names[-1] if names else "none")
    texts = {"entry": entry.read_text(encoding="utf-8")}
    if rival != "none":
        texts["record"] = ladder.source(rival)
    judge = Judge(device)
    typer.echo(f"against {rival}, judged on {len(judge.scenes.test_a)} test scenes of seed {judge.test_seed}")
    heats = race(judge, texts, numbers, on_heat=lambda name, heat: typer.echo(f"{name:7} {heat}"))
    is_record, reason = verdict(heats["entry"], heats.get("record"))
    typer.echo(f"{'record' if is_record else 'no record'}: {reason}")
    if submit and is_record:
        before = None if rival == "none" else rival
        typer.echo(ladder.submit(submit, texts["entry"], heats["entry"], before, heats.get("record", []), judge))
