"""The command line: train a model on pictures, translate pictures with it, and measure."""

import contextlib
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labkit.errors import LabkitError, check_known
from labkit.export_command import export
from labkit.files import check_folder
from labkit.options import NAMES, STEPS, Choice, Device, Exchange, shared_step, with_options
from labkit.sweep_command import sweep
from labkit.train_options import Pictures, Rate

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.step import Step

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ  # labkit.ranks would tell, too, but loads torch

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Option = typer.Option
Whose = Annotated[str, Option(help="Whose networks and size: 'fruit' or 'photographs'.")]


@app.command()
@with_options
def train(
    *,
    out: Annotated[Path, Option(help="Folder for checkpoint and sample pictures; resumes the run in it, if any.")],
    pictures: Pictures,
    steps: Annotated[int | None, Option(help="Steps to train up to.", show_default=STEPS)] = None,
    choice: Choice,
    rate: Rate,
    speedups: Annotated[
        str, Option(help=f"Names, {NAMES}; or auto alone: measures for minutes, and takes what helps.")
    ] = "",
    workers: Annotated[int, Option(help="Processes that prepare batches.", min=0)] = 2,
    seed: Annotated[int, Option(help="Determines first weights and batches.", min=0, max=2**32)] = 0,
    save_minutes: Annotated[float, Option(help="Minutes between two checkpoints.", min=0)] = 5.0,
    processes: Annotated[
        int, Option(help="Processes on this machine that share each batch, as torchrun would start them.", min=1)
    ] = 1,
    exchange: Exchange,
) -> None:
    """Train a model; run the same command again to resume after a stop."""
    if processes > 1 and not UNDER_TORCHRUN:
        from labkit import ranks

        raise typer.Exit(ranks.start(processes, sys.argv[1:]))
    import labkit

    recipe = choice.recipe(pictures.data, steps=steps, lr=rate.lr)
    schedule = rate.schedule(recipe)
    data = pictures.open(recipe.size, seed)
    names = _names(speedups)
    if names == ["auto"]:
        check_folder(out)
        names, said = labkit.autotune(lambda: choice.model(recipe, seed), choice.noise(recipe))
        typer.echo("\n".join([*said, f"auto: {', '.join(names) or 'the baseline'}"]))
    model = choice.model(recipe, seed)
    step = exchange.step(model, names, recipe.lr, data, choice.batch_size)
    options: dict[str, Any] = dict(seed=seed, workers=workers, schedule=schedule, save_minutes=save_minutes)
    started = time.process_time()
    try:
        run = labkit.fit(step, data, recipe.steps, choice.batch_size, checkpoint=out, **options)
    except KeyboardInterrupt as stopped:
        typer.echo(f"labkit: {str(stopped) or 'interrupted; steps since the last checkpoint are lost'}", err=True)
        raise typer.Exit(130) from None
    more = f", which is more than the {recipe.steps} asked for" * (run.done > recipe.steps)
    typer.echo(f"{out}: {run.done} steps done{more}, {time.process_time() - started:.0f} CPU seconds in this process")
    if pictures.data == "fruit":
        scores = labkit.quality(model, data)
        typer.echo(f"fg {scores['fg']:.2f} %, bg {scores['bg']:.2f} % (lower is better)")


@app.command()
def translate(
    source: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    target: Annotated[Path, typer.Argument(help="The picture, or the folder, to write.")],
    run: Annotated[
        Path, Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")
    ],
    direction: Annotated[str, Option(help="AtoB or BtoA.")] = "AtoB",
    size: Annotated[
        str | None,
        Option(
            help="Resize each picture to a square of so many pixels; 'training': of the run's own --size.",
            show_default="its own size",
        ),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Overwrite files that exist.")] = False,
    device: Device = "auto",
) -> None:
    """Translate a picture or a folder with a trained model."""
    from tqdm import tqdm

    import labkit
    from labkit.devices import pick_device

    load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
    model = load(run, pick_device(device))
    options: dict[str, Any] = dict(size=_size(size, run), overwrite=overwrite)
    try:  # tqdm writes a file's name above the progress bar
        labkit.translate(model, source, target, direction, **options, on_written=lambda file: tqdm.write(str(file)))
    except KeyboardInterrupt as stopped:
        typer.echo(f"labkit: {str(stopped) or 'stopped'}", err=True)
        raise typer.Exit(130) from None


def _size(given: str | None, run: Path) -> int | None:
    """The number of pixels that `--size` stands for; "training" is the size that the run was trained at."""
    if given is None or given.isdecimal():
        return None if given is None else int(given)
    if given != "training":
        raise LabkitError(f"--size {given}: give a number of pixels, or 'training'.")
    if run.suffix == ".pth":
        raise LabkitError(
            f"--size training: {run} does not say its size. Give a number; the reference's default is 256."
        )
    from labkit.training import checkpoints

    return checkpoints.load(run)["batches"]["size"]


app.command()(export)


@app.command()
@with_options
def profile(
    *,
    out: Annotated[Path, Option(help="The trace to write, .json or .json.gz.")],
    data: Whose = "fruit",
    steps: Annotated[int, Option(help="Steps to record, after three that warm up.")] = 20,
    choice: Choice,
    speedups: Annotated[str, Option(help=f"Names, {NAMES}.")] = "",
    shapes: Annotated[bool, Option(help="Record the inputs' shapes, too: for FLOP/s by operator.")] = False,
) -> None:
    """Record training steps on noise: print where the time goes by operator, and write the trace."""
    from labkit.measure import record as recording

    check_known("data", data, ("fruit", "photographs"))
    recipe = choice.recipe(data)
    model = choice.model(recipe)
    recording.check_writable(out)
    batch = choice.noise(recipe)
    profiler = recording.profiled(shared_step(model, _names(speedups)), batch, steps, shapes)
    own_time = "self_device_time_total" if batch[0].is_cuda else "self_cpu_time_total"
    typer.echo(profiler.key_averages().table(sort_by=own_time, row_limit=20))
    typer.echo(f"{recording.export(profiler, out)}: {steps} steps; open it in ui.perfetto.dev or with HTA")


@app.command()
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


@app.command()
def speedups() -> None:
    """List the speed-ups: how each differs from the baseline, what it should improve, and what it needs."""
    import labkit

    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    improves {row['improves']}; needs {row['needs']}")
        if names := row["not_with"]:
            typer.echo(f"    not together with {names}")


@app.command()
@with_options
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
    choice: Choice,
    rounds: Annotated[int, Option(help="Measurements of each, in turn.")] = 10,
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline."""
    import labkit
    from labkit import measure, ranks

    check_known("data", data, ("fruit", "photographs"))
    recipe = choice.recipe(data)
    check_folder(out)

    def maker(*names: str) -> Callable[[], "Step"]:
        return lambda: shared_step(choice.model(recipe), names)

    said: list[str] = []
    if not stacks:
        stacks, said = measure.candidates(lambda: choice.model(recipe))
    makers = {"baseline": maker(), **{stack: maker(*_names(stack)) for stack in stacks}}
    table = labkit.compare(makers, choice.noise(recipe), rounds)
    said += [f"{name}: {row['verdict']}, {row['why']}" for name, row in table.iterrows()]
    typer.echo("\n".join(said))
    if ranks.number() > 0:
        return
    typer.echo(measure.save(table, out / "compare.json"))
    if importlib.util.find_spec("plotly"):
        typer.echo(labkit.show.comparison_report(table, out / "compare.html"))


@app.command()
def survey(
    out: Annotated[Path, Option(help="Folder for results.json and traces; results in it are continued.")],
    minutes: Annotated[float, Option(help="No measurement is started that would end later.")] = 8.5,
    earlier: Annotated[Path | None, Option(help="results.json of an earlier call, to continue.")] = None,
    device: Device = "auto",
) -> None:
    """Measure everything worth recording on this GPU, in the minutes there are; on a CPU, rehearse it."""
    from labkit.measure.survey import survey

    typer.echo(survey(out, minutes, earlier, device))


app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(sweep)


def _names(speedups: str) -> list[str]:
    return [name.strip() for name in speedups.split(",") if name.strip()]


def main() -> None:
    """Runs the command line; errors that the user can fix are printed as one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    try:
        _rank() if UNDER_TORCHRUN else app()
    except (LabkitError, OSError) as error:  # OSError: its text names the file and the problem
        from labkit import ranks

        ranks.say(f"labkit: {error}")
        sys.exit(1)


def _rank() -> None:
    """The command line in one of several processes, of which the first alone prints."""
    from labkit import ranks

    with ranks.joined():
        if ranks.number() > 0:
            warnings.showwarning = lambda *_, **__: None
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        app()
