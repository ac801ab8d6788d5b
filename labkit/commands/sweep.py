"""The command `labkit sweep`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from labkit.commands.model_options import COMMON, ModelOptions
from labkit.commands.model_options import arguments as model_arguments

LOOKS = 10  # scores of a trial that may be stopped


def sweep(
    context: typer.Context,
    out: Annotated[Path, Option(help="Folder of the sweep: its study, and a run for each trial.")] = Path("out/sweep"),
    trials: Annotated[int, Option(help="How many; a later call may ask for more.", min=1)] = 24,
    at_once: Annotated[
        int | None,
        Option(help="Jobs at the same time.", min=1, show_default="one for each GPU or processor, 8 on Slurm"),
    ] = None,
    cluster: Annotated[str, Option(help="local, or slurm: each trial is a job of its own.")] = "local",
    slurm: Annotated[str, Option(help="Options of sbatch for each job.")] = "--gpus=1 --time=04:00:00",
    prune_after: Annotated[
        int | None, Option(help="Step from which a trial worse than the median of the others is stopped.", min=1)
    ] = None,
    score: Annotated[
        str | None, Option(help="The number to minimise.", show_default="fruit shortfall, photographs kid")
    ] = None,
    show: Annotated[bool, Option("--show", help="Only print the table and write the page.")] = False,
) -> None:
    """Search settings of labkit train; run the same command again to go on after a stop.

    All options of labkit train can be given. One with a range, LOW:HIGH or LOW:HIGH:log, or with choices, A,B,C, is
    searched: --lr, --batch-size and the arguments of the model.

    labkit sweep --data horse2zebra --lr 1e-4:1e-3:log --ngf 32,64 --out out/sweep
    """
    import labkit
    from labkit import sweeps

    if not show:
        options, space = divided(context.args)
        data = check(options, space)
        name = score or ("shortfall" if data == "fruit" else "kid")
        objective = sweeps.Train(shlex.join(options), name, times=1 if prune_after is None else LOOKS)
        try:
            labkit.sweep(
                objective,
                space,
                trials,
                out,
                at_once=at_once,
                cluster=cluster,
                slurm=slurm,
                prune_after=prune_after,
                say=typer.echo,
            )
        except KeyboardInterrupt:
            typer.echo("labkit: interrupted; run the same again to go on. Jobs of Slurm run on.", err=True)
            raise typer.Exit(130) from None
    typer.echo(sweeps.table(out).to_string(float_format="{:.4g}".format, na_rep=""))
    typer.echo(labkit.show.sweep_report(out, out / "sweep.html"))


def divided(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The options of `labkit train` with one value, and what to draw those from that are searched, by setting."""
    from labkit.sweeps import distribution

    kinds = {name: type(default) for name, (default, _) in model_arguments().items()} | {"lr": float, "batch_size": int}
    options: list[str] = []
    space: dict[str, Any] = {}
    words = iter([word for argument in arguments for word in argument.split("=", 1)])
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        value = next(words, "") if name in kinds else ""
        if "," in value or ":" in value:
            space[name] = distribution(name, value, kinds[name])
        else:
            options += [word, value] if name in kinds else [word]
    return options, space


def check(options: list[str], space: dict[str, Any]) -> str:
    """Raises an error if an option or a value cannot be used, rather than in each trial that has it. Gives --data."""
    from labkit.cli import app
    from labkit.sweeps import in_words

    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    given = command.make_context("train", ["--out", "x", *options]).params
    for name, one in space.items():
        for value in getattr(one, "choices", None) or (one.low, one.high):
            given = command.make_context("train", ["--out", "x", *options, *in_words({name: value})]).params
            network = {name: given[name] for name in model_arguments() if given[name] is not None}
            model = ModelOptions(**{name: given[name] for name in COMMON}, given=network)
            recipe = model.recipe(given["data"])
            model.make(recipe).check_size(recipe.size, recipe.size, where=f"{name}={value}")
    return given["data"]
