"""The commands that train: `labkit train`, and `labkit sweep`, which runs it with many settings."""

import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from filelock import FileLock

import labkit
from labkit import recipes
from labkit.commands import Setup, as_option, constructor, model_arguments, names_in, printing
from labkit.errors import LabkitError, check_known

LOOKS = 10  # scores of a trial that may be stopped


def defaults() -> str:
    """The defaults that depend on the pictures and on the model, for the end of --help."""
    lines = ["Defaults:"]
    for kind, both in recipes.KINDS.items():
        arguments = {name: default for name, (default, _) in constructor(kind).items()}
        for data, recipe in zip(("fruit", "photographs"), both, strict=True):
            settings = {**vars(recipe), **(recipe.model or arguments)}
            named = [f"{name} {value}" for name, value in settings.items() if value and name not in ("kind", "model")]
            lines.append(f"{kind}, {data}: {', '.join(named)}.")
    return "\n\n".join(lines)


def train(
    *,
    data: str = "fruit",
    preprocess: str = "resize_and_crop",
    load_size: int | None = None,
    no_flip: bool = False,
    init_from: Path | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    lr_policy: str = "linear",
    decay_steps: int | None = None,
    seed: int = 0,
    out: Path,
    save_minutes: float = 5.0,
    keep_every: int | None = None,
    scores: int = 0,
    no_tensorboard: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    speedups: str = "",
    workers: int = 2,
    processes: int = 1,
    **model_options: Any,
) -> None:
    """Train a model. Run the same command again to resume after a stop.

    Pictures:
        data: 'fruit', a public set (horse2zebra), or a folder with trainA, trainB.
        preprocess: Or crop, scale_width, scale_width_and_crop, none.
        load_size: Pixels before the crop: 286/256 of --size.
        no_flip: Mirror no picture.

    Networks:
        init_from: Start with the weights of a run, or of the reference.

    Schedule:
        steps: Steps to train up to.
        epochs: The same in rounds of pictures.
        lr: Adam's learning rate.
        lr_policy: How it falls: linear, step or cosine.
        decay_steps: With linear, the last steps, in which it falls. With step, the steps from one fall to the next.
        seed: Of first weights and batches.

    Saving, and what is printed:
        out: Folder of the run. A run that is there goes on.
        save_minutes: Minutes between checkpoints.
        keep_every: Steps between checkpoints to keep.
        scores: Scores, into scores.csv.
        no_tensorboard: Write no TensorBoard log.
        quiet: Print errors only.
        as_json: Print one JSON object only.

    Several processes, and speed:
        speedups: Names, with commas (bf16,batched), or auto, which measures them and takes those that help.
        workers: Processes that prepare batches.
        processes: Processes that share each batch.
    """
    from labkit.measure.scores import Scores
    from labkit.training import checkpoints
    from labkit.training.callbacks import tensorboard_installed

    if processes > 1 and not labkit.ranks.started_by_torchrun():
        raise typer.Exit(labkit.ranks.start(processes, sys.argv[1:]))
    started = time.monotonic()
    if steps and epochs:
        raise LabkitError("--steps and --epochs say the same. Give one of them.")
    setup = Setup(data, steps, lr, **model_options)
    recipe, batch_size = setup.recipe, setup.batch_size
    with printing(quiet, as_json):
        network = setup.make(seed)
        if init_from and (out / checkpoints.FILE).exists():
            typer.echo(f"{out}: this run goes on from its own checkpoint, so --init-from is ignored")
        elif init_from:
            labkit.init_from(network, init_from)
            typer.echo(f"{out}: starts from the weights in {init_from}")
        prepared = dict(preprocess=preprocess, load_size=load_size, flip=not no_flip)
        pictures = open_pictures(data, recipe.size, seed, prepared)
        if epochs:
            recipe = dataclasses.replace(recipe, steps=-(-epochs * pictures.epoch // batch_size))
        names = names_in(speedups)
        if names == ["auto"]:
            names, reasons = labkit.measure.remembered(out, setup.make, setup.noise())
            typer.echo("\n".join(reasons))
        if "compile" in names:
            typer.echo("the networks are compiled in the first step, which can take minutes")
        callbacks: list[labkit.Callback] = []
        if scores:
            callbacks.append(Scores(pictures, max(1, recipe.steps // scores)))
        if keep_every:
            callbacks.append(labkit.KeepEvery(keep_every))
        if not no_tensorboard and tensorboard_installed():
            callbacks.append(labkit.TensorBoard(out / "tensorboard"))
        run = labkit.fit(
            setup.step(network, names),
            pictures,
            recipe.steps,
            batch_size,
            checkpoint=out,
            seed=seed,
            workers=workers,
            schedule=schedule(lr_policy, decay_steps, recipe),
            save_minutes=save_minutes,
            callbacks=callbacks,
        )
        quality = labkit.quality(network, pictures) if data == "fruit" else None
        typer.echo(f"{out}: {run.done} steps done, {time.process_time():.0f} CPU seconds in this process")
        if quality is not None:
            typer.echo(f"fg {quality['fg']:.2f} %, bg {quality['bg']:.2f} % (lower is better)")
    if as_json:
        last, seconds = {name: losses[-1] for name, losses in run.losses.items()}, time.monotonic() - started
        result = {"folder": str(out), "steps": run.done, "losses": last, "seconds": seconds, "scores": quality}
        typer.echo(json.dumps(result))


def schedule(policy: str, decay: int | None, recipe: recipes.Recipe) -> Callable[[int], float] | None:
    """From the number of steps done to the factor on the learning rate, or None to keep it constant.

    Raises:
        LabkitError: the policy is unknown, or the number does not suit it.
    """
    check_known("lr-policy", policy, ("linear", "step", "cosine"))
    if policy == "step":
        return labkit.step_schedule(decay or max(1, recipe.steps // 4))
    if policy == "cosine":
        if decay is not None:
            raise LabkitError("--decay-steps belongs to --lr-policy linear or step, not to cosine.")
        return labkit.cosine_schedule(recipe.steps)
    decay = round(recipe.decay * recipe.steps) if decay is None else decay
    return labkit.linear_schedule(recipe.steps - decay, decay) if decay else None


def open_pictures(data: str, size: int, seed: int, prepared: dict[str, Any]) -> Any:
    """Fruit, or the pictures of a folder or of a public set, which is downloaded.

    Raises:
        LabkitError: there are no such pictures, or they cannot be prepared like this.
    """
    from labkit.data.folders import PUBLIC_SETS

    if data == "fruit":
        if prepared != dict(preprocess="resize_and_crop", load_size=None, flip=True):
            raise LabkitError("--preprocess, --load-size and --no-flip are for folders; fruit is painted at --size.")
        return labkit.fruit(size=size, seed=seed)
    if data in PUBLIC_SETS and not Path(data).is_dir():
        Path("datasets").mkdir(exist_ok=True)
        with FileLock("datasets/.lock"):  # one process fetches it, and the others wait
            data = str(labkit.download(data))
    return labkit.folders(data, size, **prepared)


def sweep(
    context: typer.Context,
    *,
    out: Path = Path("out/sweep"),
    trials: int = 24,
    at_once: int | None = None,
    cluster: str = "local",
    slurm: str = "--gpus=1 --time=04:00:00",
    prune_after: int | None = None,
    score: str | None = None,
    show: bool = False,
) -> None:
    """Search settings of labkit train. Run the same command again to go on after a stop.

    All options of labkit train can be given. One with a range, LOW:HIGH or LOW:HIGH:log, or with choices, A,B,C, is
    searched: --lr, --batch-size and the arguments of the model. From 0:1 whole numbers are drawn, from 0.0:1 others.

    labkit sweep --data horse2zebra --lr 1e-4:1e-3:log --ngf 32,64 --out out/sweep

    Options:
        out: Folder of the sweep: its study, and a run for each trial.
        trials: How many. A later call may ask for more.
        at_once: Jobs at the same time: one for each GPU or processor, 8 on Slurm.
        cluster: local, or slurm: each trial is a job of its own.
        slurm: Options of sbatch for each job.
        prune_after: Step from which a trial worse than the median of the others is stopped.
        score: The number to minimise: fruit shortfall, photographs kid.
        show: Only print the table and write the page.
    """
    if not show:
        options, space = divided(context.args)
        data = check_trials(options, space)
        default = "shortfall" if data == "fruit" else "kid"
        objective = labkit.sweeps.Train(shlex.join(options), score or default, times=LOOKS if prune_after else 1)
        jobs: dict[str, Any] = dict(at_once=at_once, cluster=cluster, slurm=slurm, prune_after=prune_after)
        with printing():
            labkit.sweep(objective, space, trials, out, **jobs)
    typer.echo(labkit.sweeps.table(out).to_string(float_format="{:.4g}".format, na_rep=""))
    typer.echo(labkit.show.sweep_report(out, out / "sweep.html"))


def divided(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The options of `labkit train` that each trial has, and the ranges and choices of the others by setting."""
    searchable = {as_option(name): name for name in ("lr", "batch_size", *model_arguments())}
    options, space = [], {}
    words = iter([word for each in arguments for word in (each.split("=", 1) if each[:2] == "--" else [each])])
    for word in words:
        value = next(words, "") if word in searchable else ""
        if set(value) & set(",:"):
            space[searchable[word]] = value
        else:
            options += [word, value] if word in searchable else [word]
    return options, space


def check_trials(options: list[str], space: dict[str, str]) -> str:
    """Raises an error if an option or its first value cannot be used, rather than in each trial. Gives --data."""
    from labkit import cli

    command = typer.main.get_command(cli.app).commands["train"]  # type: ignore[attr-defined]
    ranges: dict[str, Any] = {name: labkit.sweeps.distribution(name, values) for name, values in space.items()}
    first = {name: each.choices[0] if hasattr(each, "choices") else each.low for name, each in ranges.items()}
    given = command.make_context("train", ["--out", "x", *options, *labkit.sweeps.in_words(first)]).params
    setup = Setup(given["data"], **{name: given[name] for name in ("lr", "model", *model_arguments())})
    setup.step(setup.make(), [])
    return given["data"]
