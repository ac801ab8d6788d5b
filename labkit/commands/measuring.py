"""The commands that measure: `labkit profile`, `speedups` and `compare`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import labkit
from labkit.commands import Setup, names_in
from labtrace.errors import check_known
from labtrace.files import check_folder


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
    typer.echo(
        f"{recording.export(profiler, out)}: {steps} steps; labkit report reads it, and ui.perfetto.dev shows it"
    )


def speedups() -> None:
    """List the speed-ups: how each differs from the baseline, what it should improve, and what it needs."""
    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    improves {row['improves']}; needs {row['needs']}")
        if names := row["not_with"]:
            typer.echo(f"    not together with {names}")


def compare(
    stacks: list[str] | None = None, *, out: Path = Path("out", "compare"), data: str = "fruit", **model_options: Any
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline.

    Args:
        stacks: Each a speed-up, or several with commas: bf16 bf16,batched. Without any, all that can save time here.

    Options:
        out: Folder for compare.json and compare.html. Older ones are replaced.
        data: Whose networks and size: 'fruit', or else photographs.
    """
    from labkit.variants.registry import SPEEDUPS

    for name in names_in(",".join(stacks or [])):
        check_known("speed-up", name, SPEEDUPS)
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
        typer.echo(labkit.show.comparison_report(table, out / "compare.html"))
