"""The command that searches: `labkit sweep`, each trial of which is one `labkit train`."""

import csv
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import labkit
from labkit.commands import Setup, model_arguments, parser, printing
from labkit.commands.training import train
from labtrace.cli import as_option


def sweep(
    context: typer.Context,
    *,
    out: Path = Path("out/sweep"),
    trials: int = 24,
    at_once: int | None = None,
    cluster: str = "local",
    slurm: str = "--gpus=1 --time=04:00:00",
    show: bool = False,
) -> None:
    """Search settings of labkit train. Run the same command again to continue after a stop.

    All options of labkit train can be given. One with a range, LOW:HIGH or LOW:HIGH:log, or with choices, A,B,C, is
    searched: --lr, --batch-size and the arguments of the model. From 0:1 whole numbers are drawn, from 0.0:1 others.

    labkit sweep --data horse2zebra --lr 1e-4:1e-3:log --ngf 32,64 --out out/sweep

    Options:
        out: Folder of the sweep: its study, and a run for each trial.
        trials: How many. A later call may ask for more.
        at_once: Jobs at the same time: one for each GPU or processor, 8 on Slurm.
        cluster: local, or slurm: each trial is a job of its own.
        slurm: Options of sbatch for each job.
        show: Only print the table.
    """
    if not show:
        options, space = divided(context.args)
        check_trials(options, space)
        with printing():
            labkit.sweep(Train(shlex.join(options)), space, trials, out, at_once=at_once, cluster=cluster, slurm=slurm)
    typer.echo(labkit.sweeps.table(out).to_string(float_format="{:.4g}".format, na_rep=""))


def divided(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The options of `labkit train` that each trial has, and the ranges and choices of the others by setting."""
    searchable = {as_option(name): name for name in ("lr", "batch_size", *model_arguments())}
    options, space = [], {}
    words = iter([word for each in arguments for word in (each.split("=", 1) if each[:2] == "--" else [each])])
    for word in words:
        value = next(words, "") if word in searchable else ""
        if set(value) & set(",:") and "=" not in value:  # as in a learning rate for each player
            space[searchable[word]] = value
        else:
            options += [word, value] if word in searchable else [word]
    return options, space


def check_trials(options: list[str], space: dict[str, str]) -> None:
    """Raises an error if an option or its first value cannot be used, or no trial scored, rather than in each trial."""
    ranges: dict[str, Any] = {name: labkit.sweeps.distribution(name, values) for name, values in space.items()}
    first = {name: each.choices[0] if hasattr(each, "choices") else each.low for name, each in ranges.items()}
    given = parser(train).make_context("train", ["--out", "x", *options, *as_options(first)]).params
    setup = Setup(**{name: given[name] for name in ("data", "lr", "model", *model_arguments())})
    setup.step(setup.make(), [])
    if given["data"] != "fruit":
        from labkit.measure import scores

        scores.inception()


def as_options(settings: Mapping[str, Any]) -> list[str]:
    """The settings as options of the command line."""
    return [word for name, value in settings.items() for word in (as_option(name), str(value))]


@dataclass(frozen=True)
class Train:
    """An objective for `labkit.sweep`: runs `labkit train` in the trial's folder, and gives its score at the end.

    The score is the shortfall for fruit, KID for photographs.

    Args:
        options: of `labkit train`, without --out, as on the command line: "--data fruit --steps 600".
    """

    options: str

    def __str__(self) -> str:
        return f"labkit train {self.options}"

    def __call__(self, folder: Path, **settings: Any) -> float:
        from labkit.measure import scores

        options = ["--out", str(folder), "--scores", "1", *shlex.split(self.options), *as_options(settings), "--quiet"]
        if status := parser(train)(options, standalone_mode=False):
            sys.exit(status)  # it was stopped, and saved
        with open(folder / scores.FILE, newline="", encoding="utf-8") as file:
            last = list(csv.DictReader(file))[-1]
        return float(last.get("shortfall") or last["kid"])
