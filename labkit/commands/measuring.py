"""The commands that measure: `labkit profile`, `report`, `speedups` and `compare`."""

import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from labkit.commands.model_options import NAMES, ModelOptions, names_in, with_model
from labkit.errors import check_known
from labkit.files import check_folder

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.models.step import Step

Whose = Annotated[str, Option(help="Whose networks and size: 'fruit' or 'photographs'.")]


@with_model
def profile(
    *,
    out: Annotated[Path, Option(help="The trace to write, .json or .json.gz.")],
    data: Whose = "fruit",
    steps: Annotated[int, Option(help="Steps to record, after three that warm up.")] = 20,
    model: ModelOptions,
    speedups: Annotated[str, Option(help=f"Names, {NAMES}.")] = "",
    shapes: Annotated[bool, Option(help="Record the inputs' shapes, too: for FLOP/s by operator.")] = False,
) -> None:
    """Record training steps on noise: print where the time goes by operator, and write the trace."""
    from labkit.measure import record as recording

    check_known("data", data, ("fruit", "photographs"))
    recipe = model.recipe(data)
    network = model.make(recipe)
    recording.check_writable(out)
    batch = model.noise(recipe)
    profiler = recording.profiled(model.step(network, names_in(speedups)), batch, steps, shapes)
    own_time = "self_device_time_total" if batch[0].is_cuda else "self_cpu_time_total"
    typer.echo(profiler.key_averages().table(sort_by=own_time, row_limit=20))
    typer.echo(f"{recording.export(profiler, out)}: {steps} steps; open it in ui.perfetto.dev or with HTA")


def report(
    traces: Annotated[list[Path], typer.Argument(help="Trace files, or folders with a file of each rank.")],
    out: Annotated[Path, Option(help="The page to write.")] = Path("out", "report.html"),
) -> None:
    """Say what each cause of a trace's time costs, and write a page with its figures."""
    import labkit

    opened = {path.name: labkit.Trace(path) for path in traces}
    for name, trace in opened.items():
        with contextlib.suppress(labkit.TraceError):  # recorded on a CPU: the page says what it lacks
            typer.echo("\n".join(f"{name}: {why}" for why in trace.summary()["why"]))
    typer.echo(labkit.show.trace_report(opened, out))


def speedups() -> None:
    """List the speed-ups: how each differs from the baseline, what it should improve, and what it needs."""
    import labkit

    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    improves {row['improves']}; needs {row['needs']}")
        if names := row["not_with"]:
            typer.echo(f"    not together with {names}")


@with_model
def compare(
    *,
    stacks: Annotated[
        list[str] | None,
        typer.Argument(
            help="Each a speed-up, or several with commas: bf16 bf16,batched.",
            show_default="every speed-up by itself that can save time here",
        ),
    ] = None,
    out: Annotated[Path, Option(help="Folder for compare.json and compare.html; replaces them.")] = Path(
        "out", "compare"
    ),
    data: Whose = "fruit",
    model: ModelOptions,
    rounds: Annotated[int, Option(help="Measurements of each, in turn.")] = 10,
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline."""
    import labkit
    from labkit import measure, ranks

    check_known("data", data, ("fruit", "photographs"))
    recipe = model.recipe(data)
    check_folder(out)

    def maker(*names: str) -> Callable[[], "Step"]:
        return lambda: model.step(model.make(recipe), list(names))

    said: list[str] = []
    if not stacks:
        stacks, said = measure.candidates(lambda: model.make(recipe))
    makers = {"baseline": maker(), **{stack: maker(*names_in(stack)) for stack in stacks}}
    table = labkit.compare(makers, model.noise(recipe), rounds)
    said += [f"{name}: {row['verdict']}, {row['why']}" for name, row in table.iterrows()]
    typer.echo("\n".join(said))
    if ranks.number() > 0:
        return
    typer.echo(measure.save(table, out / "compare.json"))
    if importlib.util.find_spec("plotly"):
        typer.echo(labkit.show.comparison_report(table, out / "compare.html"))
