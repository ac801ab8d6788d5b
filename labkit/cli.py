"""The command line: train a model on pictures, translate pictures with it, and measure."""

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import labkit
from labkit.commands.export import export
from labkit.commands.measuring import compare, profile, report, speedups, survey
from labkit.commands.options import NAMES, STEPS, Choice, Device, Exchange, speedup_names, with_options
from labkit.commands.output import Output
from labkit.commands.run_options import Keeping, Logging, Step, chosen, few_processes
from labkit.commands.score import score
from labkit.commands.speedrun import speedrun
from labkit.commands.sweep import sweep
from labkit.commands.train_options import Pictures, Rate
from labkit.errors import LabkitError

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ  # labkit.ranks would tell, too, but loads torch

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Option = typer.Option


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labkit {labkit.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print labkit's version.")
    ] = False,
) -> None:
    """The options of `labkit` itself, whose help is that of `app`."""


@app.command()
@with_options
def train(
    *,
    out: Annotated[Path, Option(help="Folder for checkpoint, samples and losses.csv; resumes the run in it, if any.")],
    pictures: Pictures,
    steps: Annotated[int | None, Option(help="Steps to train up to.", min=1, show_default=STEPS)] = None,
    choice: Choice,
    rate: Rate,
    speedups: Annotated[
        str, Option(help=f"Names, {NAMES}; or auto alone: measures for minutes, and takes what helps.")
    ] = "",
    workers: Annotated[int, Option(help="Processes that prepare batches.", min=0, callback=few_processes)] = 2,
    seed: Annotated[int, Option(help="Determines first weights and batches.", min=0, max=2**32)] = 0,
    save_minutes: Annotated[float, Option(help="Minutes between two checkpoints.", min=0)] = 5.0,
    processes: Annotated[
        int,
        Option(
            help="Processes on this machine that share each batch, as torchrun would start them.",
            min=1,
            callback=few_processes,
        ),
    ] = 1,
    exchange: Exchange,
    keeping: Keeping,
    logging: Logging,
    output: Output,
) -> None:
    """Train a model; run the same command again to resume after a stop."""
    if processes > 1 and not UNDER_TORCHRUN:
        from labkit import ranks

        raise typer.Exit(ranks.start(processes, sys.argv[1:]))
    started = time.monotonic(), time.process_time()
    recipe = choice.recipe(pictures.data, steps=steps, lr=rate.lr)
    schedule = rate.schedule(recipe)
    with output.working(if_stopped="interrupted; steps since the last checkpoint are lost"):
        options: dict[str, Any] = dict(seed=seed, workers=workers, schedule=schedule, save_minutes=save_minutes)
        options |= dict(callbacks=[*logging.callbacks(out), *keeping.callbacks()])
        model = choice.model(recipe, seed)
        if pictures.square:
            model.check_size(recipe.size, recipe.size, where=f"--size {recipe.size}")
        for line in keeping.start(model, out, dict(size=recipe.size, batch_size=choice.batch_size, seed=seed)):
            output.say(line)
        data = pictures.open(recipe.size, seed)
        keeping.accept(data, out)
        if choice.batch_size > data.epoch:
            output.say(f"--batch-size {choice.batch_size}: each batch repeats some of the {data.epoch} pictures")
        names = speedup_names(speedups)
        if names == ["auto"]:
            names, said = labkit.autotune(lambda: choice.model(recipe, seed), choice.noise(recipe))
            output.say("\n".join([*said, f"auto: {', '.join(names) or 'the baseline'}"]))
        for name in {"compile", "compile_regions"} & set(names):
            takes = "can take minutes" if name == "compile" else "can take a minute"
            output.say(f"{name}: the networks are compiled in the first step, which {takes}")
        step = exchange.step(model, names, recipe.lr, data, choice.batch_size)
        run = labkit.fit(step, data, recipe.steps, choice.batch_size, checkpoint=out, **options)
        scores = labkit.quality(model, data) if pictures.data == "fruit" else None
    seconds, cpu_seconds = time.monotonic() - started[0], time.process_time() - started[1]
    more = f", which is more than the {recipe.steps} asked for" * (run.done > recipe.steps)
    lines = [f"{out}: {run.done} steps done{more}, {cpu_seconds:.0f} CPU seconds in this process"]
    if scores is not None:
        lines.append(f"fg {scores['fg']:.2f} %, bg {scores['bg']:.2f} % (lower is better)")
    last = {name: losses[-1] for name, losses in run.losses.items()}
    result = {"folder": str(out), "steps": run.done, "losses": last, "seconds": round(seconds, 3), "scores": scores}
    output.end(result, lines)


@app.command()
@with_options
def translate(
    *,
    source: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    target: Annotated[Path, typer.Argument(help="The picture, or the folder, to write.")],
    run: Annotated[
        Path, Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")
    ],
    step: Step = None,
    direction: Annotated[str, Option(help="AtoB or BtoA.")] = "AtoB",
    size: Annotated[
        str | None,
        Option(
            help="Resize each picture to a square of so many pixels; 'training': of the run's own --size.",
            show_default="its own size",
        ),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Overwrite files that exist.")] = False,
    skip_existing: Annotated[bool, Option("--skip-existing", help="Pass over pictures whose file exists.")] = False,
    device: Device = "auto",
    output: Output,
) -> None:
    """Translate a picture or a folder with a trained model."""
    from tqdm import tqdm

    from labkit.devices import pick_device

    def say(file: Path) -> None:
        if not output.as_json:
            tqdm.write(str(file))  # above the progress bar

    with output.working(if_stopped="stopped"):
        run = chosen(run, step)
        load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
        model = load(run, pick_device(device))
        options: dict[str, Any] = dict(overwrite=overwrite, skip_existing=skip_existing, progress=not output.quiet)
        written = labkit.translate(model, source, target, direction, size=_size(size, run), **options, on_written=say)
    output.end({"written": [str(file) for file in written]}, [])


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


for command in (export, score, profile, report, speedups, compare, survey, speedrun):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(sweep)


def main() -> None:
    """Runs the command line; errors that the user can fix are printed as one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    try:
        _rank() if UNDER_TORCHRUN else app()
    except (LabkitError, OSError) as error:  # OSError: its text names the file and the problem
        from labkit import ranks

        ranks.say(f"labkit: {error}")
        sys.exit(1)
    except (RuntimeError, MemoryError) as error:
        from labkit import ranks
        from labkit.devices import LESS_MEMORY, out_of_memory

        if (reason := out_of_memory(error)) is None:
            raise
        ranks.say(f"labkit: out of memory ({reason}). {LESS_MEMORY}")
        sys.exit(1)


def _rank() -> None:
    """The command line in one of several processes, of which the first alone prints."""
    from labkit import ranks

    with ranks.joined():
        if ranks.number() > 0:
            warnings.showwarning = lambda *_, **__: None
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        app()
