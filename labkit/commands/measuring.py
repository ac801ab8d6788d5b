"""The commands that measure: `labkit profile`, `speedups` and `compare`."""

import dataclasses
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import labkit
from labkit.commands import Setup, names_in
from labkit.errors import LabkitError
from labtrace.errors import check_known
from labtrace.files import check_folder


def measured(like: Path | None, *, size: int | None, **options: Any) -> Setup:
    """The setup of a recipe or, if `like` is given, with the model of a run's folder or of a Python file.

    Raises:
        CheckpointError: there is no such run, or it has networks of the user's own, which a Python file can make.
        LabkitError: the file defines no ``make_model``.
    """
    setup = Setup(size=size, **options)
    if like is None:
        return setup
    if like.suffix == ".py":
        setup.make_model = runpy.run_path(str(like)).get("make_model")
        if setup.make_model is None:
            raise LabkitError(f"{like}: define a function make_model() in it, which makes the model to measure.")
    else:
        from labkit.training import checkpoints

        size = size or checkpoints.load(like)["batches"]["size"]
        setup.make_model = lambda: labkit.load_model(like).train()
    setup.recipe = dataclasses.replace(setup.recipe, size=size or setup.recipe.size, model=setup.make().settings)
    return setup


def profile(
    *, out: Path, like: Path | None = None, steps: int = 20, speedups: str = "", shapes: bool = False, **options: Any
) -> None:
    """Record training steps on noise: print where the time goes by operator, and write the trace.

    Options:
        out: The trace to write, .json or .json.gz.
        data: Whose networks and size: 'fruit', or else photographs.
        like: A run, or a Python file that defines make_model(): measure its model.
        steps: Steps to record, after three that warm up.
        speedups: Names, with commas (bf16,batched).
        shapes: Record the inputs' shapes, too: for FLOP/s by operator.
    """
    from labkit.measure import record as recording

    setup = measured(like, **options)
    recording.check_writable(out)
    batch = setup.noise()
    profiler = recording.profiled(setup.step(setup.make(), names_in(speedups)), batch, steps, shapes)
    own_time = "self_device_time_total" if batch[0].is_cuda else "self_cpu_time_total"
    typer.echo(profiler.key_averages().table(sort_by=own_time, row_limit=20))
    typer.echo(f"{recording.write_profile(profiler, out)}: {steps} steps, for labkit report and ui.perfetto.dev")


def speedups() -> None:
    """List the speed-ups: how each differs from the baseline, what it should improve, and what it needs."""
    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    improves {row['improves']}; needs {row['needs']}")
        if names := row["not_with"]:
            typer.echo(f"    not together with {names}")


def compare(
    stacks: list[str] | None = None, *, out: Path = Path("out", "compare"), like: Path | None = None, **options: Any
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline.

    Args:
        stacks: Each a speed-up, or several with commas: bf16 bf16,batched. Without any, all that can save time here.

    Options:
        out: Folder for compare.json and compare.html. Older ones are replaced.
        data: Whose networks and size: 'fruit', or else photographs.
        like: A run, or a Python file that defines make_model(): measure its model.
    """
    from labkit.measure import autotune, tables
    from labkit.show.comparisons import comparison_report
    from labkit.variants.registry import SPEEDUPS

    for name in names_in(",".join(stacks or [])):
        check_known("speed-up", name, SPEEDUPS)
    setup = measured(like, **options)
    check_folder(out)

    def maker(*names: str) -> Callable[[], "labkit.Step"]:
        return lambda: setup.step(setup.make(), list(names))

    stacks, left_out = (stacks, []) if stacks else autotune.candidates(setup.make)
    makers = {"baseline": maker(), **{stack: maker(*names_in(stack)) for stack in stacks}}
    table = labkit.compare(makers, setup.noise())
    typer.echo("\n".join([*left_out, *(f"{name}: {row['verdict']}, {row['why']}" for name, row in table.iterrows())]))
    if labkit.ranks.number() == 0:
        typer.echo(tables.write_table(table, out / "compare.json"))
        typer.echo(comparison_report(table, out / "compare.html"))
