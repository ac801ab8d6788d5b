"""The command `labkit train`."""

import difflib
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import labkit
from labkit import recipes
from labkit.commands.model_options import (
    NAMES,
    NETWORKS,
    PICTURES,
    PROCESSES,
    ModelOptions,
    at_least,
    constructor,
    with_model,
)
from labkit.commands.output import SAVING, AsJson, Output, Quiet
from labkit.errors import LabkitError, check_known

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.data.batches import UnpairedData

Pictures = functools.partial(Option, rich_help_panel=PICTURES)
Schedule = functools.partial(Option, rich_help_panel="Schedule")
Saving = functools.partial(Option, rich_help_panel=SAVING)
Processes = functools.partial(Option, rich_help_panel=PROCESSES)
MOST = 32  # processes: more would fill the memory of any machine
REPORT_EVERY = 50  # steps, as `labkit.fit` has it
POLICIES = ("linear", "step", "cosine")


def defaults() -> str:
    """The defaults that depend on the pictures and on the model, for the end of --help."""
    lines = ["Defaults:"]
    for kind in recipes.KINDS:
        paper = {name: default for name, (default, _) in constructor(kind).items()}
        for data, settings in (("photographs", paper), ("fruit", {})):
            recipe = recipes.find(data, kind)
            settings = {"size": recipe.size, "steps": recipe.steps, "lr": recipe.lr, **settings, **recipe.model}
            told = [f"{name.replace('_', '-')} {value}" for name, value in settings.items() if value is not None]
            half = f", decay-steps {recipe.decay:.0%} of the steps" if recipe.decay else ""
            lines.append(f"{kind}, {data}: {', '.join(told)}{half}.")
    return "\n\n".join(lines)


@with_model
def train(
    *,
    data: Annotated[str, Pictures(help="'fruit', a public set (horse2zebra), or a folder with trainA, trainB.")] = (
        "fruit"
    ),
    preprocess: Annotated[str, Pictures(help="Or crop, scale_width, scale_width_and_crop, none.")] = "resize_and_crop",
    load_size: Annotated[
        int | None, Pictures(help="Pixels before the crop: 286/256 of --size.", callback=at_least(16))
    ] = None,
    no_flip: Annotated[bool, Pictures("--no-flip", help="Mirror no picture.")] = False,
    init_from: Annotated[
        Path | None, Option(help="Start with the weights of a run, or of the reference.", rich_help_panel=NETWORKS)
    ] = None,
    steps: Annotated[int | None, Schedule(help="Steps to train up to.", callback=at_least(1))] = None,
    epochs: Annotated[
        int | None, Schedule(help="The same in rounds through the pictures.", callback=at_least(1))
    ] = None,
    lr: Annotated[float | None, Schedule(help="Adam's learning rate.", callback=at_least(1e-300, 1e9))] = None,
    lr_policy: Annotated[str, Schedule(help="How it falls: linear, step or cosine.")] = "linear",
    decay_steps: Annotated[
        int | None,
        Schedule(
            help="linear: last steps, in which it falls; step: steps from one fall to the next.", callback=at_least(0)
        ),
    ] = None,
    seed: Annotated[int, Schedule(help="Determines first weights and batches.", callback=at_least(0, 2**32))] = 0,
    out: Annotated[Path, Saving(help="Folder of the run; one that is there goes on.")],
    save_minutes: Annotated[float, Saving(help="Minutes between two checkpoints.", callback=at_least(0))] = 5.0,
    keep_every: Annotated[
        int | None, Saving(help="Steps between checkpoints that are kept.", callback=at_least(1))
    ] = None,
    allow_new_data: Annotated[bool, Saving("--allow-new-data", help="Go on with more or fewer pictures.")] = False,
    scores: Annotated[int, Saving(help="Times to score translations, into scores.csv.", callback=at_least(0))] = 0,
    no_tensorboard: Annotated[bool, Saving("--no-tensorboard", help="Write no log for TensorBoard.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    speedups: Annotated[
        str, Option(help=f"Names, {NAMES}; auto: measures, and takes what helps.", rich_help_panel=PROCESSES)
    ] = "",
    workers: Annotated[int, Processes(help="Processes that prepare batches.", callback=at_least(0, MOST))] = 2,
    processes: Annotated[int, Processes(help="Processes here that share each batch.", callback=at_least(1, MOST))] = 1,
    model: ModelOptions,
) -> None:
    """Train a model; run the same command again to resume after a stop."""
    from labkit import ranks
    from labkit.measure.scores import Scores
    from labkit.training import checkpoints
    from labkit.training.callbacks import tensorboard_installed

    if processes > 1 and not ranks.started_by_torchrun():
        raise typer.Exit(ranks.start(processes, sys.argv[1:]))
    started = time.monotonic(), time.process_time()
    output = Output(quiet, as_json)
    if steps and epochs:
        raise LabkitError("--steps and --epochs say the same. Give one of them.")
    recipe = model.recipe(data, steps=steps, lr=lr)
    with output.working(if_stopped="interrupted; steps since the last checkpoint are lost"):
        network = model.make(recipe, seed)
        if preprocess not in ("scale_width", "none"):
            network.check_size(recipe.size, recipe.size, where=f"--size {recipe.size}")
        if ranks.number() == 0:
            checkpoints.look_first(out, network, dict(size=recipe.size, batch_size=model.batch_size, seed=seed))
        if init_from is not None and (out / checkpoints.FILE).exists():
            output.say(f"{out}: this run goes on from its own checkpoint, so --init-from is ignored")
        elif init_from is not None:
            labkit.init_from(network, init_from)
            output.say(f"{out}: starts from the weights in {init_from}")
        if data == "fruit" and (preprocess != "resize_and_crop" or load_size or no_flip):
            raise LabkitError("--preprocess, --load-size and --no-flip are for folders; fruit is painted at --size.")
        prepared = dict(preprocess=preprocess, load_size=load_size, flip=not no_flip)
        pictures = labkit.fruit(size=recipe.size, seed=seed) if data == "fruit" else opened(data, recipe.size, prepared)
        if model.batch_size > pictures.epoch:
            output.say(f"--batch-size {model.batch_size}: each batch repeats some of the {pictures.epoch} pictures")
        if allow_new_data and (out / checkpoints.FILE).exists():
            if ranks.number() == 0:
                labkit.accept_new_data(out, pictures)
            ranks.all_equal({"--allow-new-data": True})  # which no rank passes before rank 0 has written
        if epochs:
            recipe = model.recipe(data, steps=-(-epochs * pictures.epoch // model.batch_size), lr=lr)
        schedule = falling(lr_policy, decay_steps, recipe)
        names, said = model.speedups(speedups, recipe, out)
        for line in said:
            output.say(line)
        every = max(1, recipe.steps // max(1, scores))
        callbacks: list[labkit.Callback] = []
        if scores:
            every -= every % REPORT_EVERY if every > REPORT_EVERY else 0
            callbacks.append(Scores(pictures, every))
        if keep_every:
            callbacks.append(labkit.KeepEvery(keep_every))
        if not no_tensorboard and tensorboard_installed():
            callbacks.append(labkit.TensorBoard(out / "tensorboard"))
        run = labkit.fit(
            model.step(network, names, recipe.lr),
            pictures,
            recipe.steps,
            model.batch_size,
            checkpoint=out,
            seed=seed,
            workers=workers,
            schedule=schedule,
            report_every=min(every, REPORT_EVERY),
            save_minutes=save_minutes,
            callbacks=callbacks,
        )
        quality = labkit.quality(network, pictures) if data == "fruit" else None
    seconds, cpu_seconds = time.monotonic() - started[0], time.process_time() - started[1]
    more = f", which is more than the {recipe.steps} asked for" * (run.done > recipe.steps)
    lines = [f"{out}: {run.done} steps done{more}, {cpu_seconds:.0f} CPU seconds in this process"]
    if quality is not None:
        lines.append(f"fg {quality['fg']:.2f} %, bg {quality['bg']:.2f} % (lower is better)")
    last = {name: losses[-1] for name, losses in run.losses.items()}
    result = {"folder": str(out), "steps": run.done, "losses": last, "seconds": round(seconds, 3), "scores": quality}
    output.end(result, lines)


def falling(policy: str, decay: int | None, recipe: recipes.Recipe) -> Callable[[int], float] | None:
    """From the number of steps done to the factor on the learning rate; None leaves that constant.

    Raises:
        LabkitError: the policy is unknown, or the number does not suit it.
    """
    if policy == "plateau":
        raise LabkitError(
            "--lr-policy plateau: it waits for a measure to stop falling, and a GAN has none. The reference gives "
            "it the constant 0, so that its rate falls to a fifth every six epochs: take step or linear."
        )
    check_known("lr-policy", policy, POLICIES)
    if policy == "cosine":
        if decay is not None:
            raise LabkitError("--decay-steps belongs to --lr-policy linear or step, not to cosine.")
        return labkit.cosine_schedule(recipe.steps)
    if policy == "step":
        return labkit.step_schedule(decay or max(1, recipe.steps // 4))
    decay = round(recipe.decay * recipe.steps) if decay is None else decay
    if decay > recipe.steps:
        raise LabkitError(f"--decay-steps {decay}: the run has {recipe.steps} steps. Give fewer, or more --steps.")
    return labkit.linear_schedule(recipe.steps - decay, decay) if decay else None


def opened(name: str, size: int, prepared: dict[str, Any]) -> "UnpairedData":
    """The pictures of a folder or of a public set, which is downloaded.

    Raises:
        LabkitError: there are no such pictures, or they cannot be prepared like this.
    """
    from labkit import ranks
    from labkit.data.folders import PUBLIC_SETS

    folder: Path | str = name
    if name in PUBLIC_SETS and not Path(name).is_dir():
        if ranks.count() > 1 and not Path("datasets", name).is_dir():
            raise LabkitError(
                f"--data {name}: this set is not there yet, and several processes should not all fetch it. Fetch it "
                f"first: python -c \"import labkit; labkit.download('{name}')\""
            )
        folder = labkit.download(name)
    close = difflib.get_close_matches(name, ["fruit", *PUBLIC_SETS], n=1)
    if close and not Path(folder).exists():
        raise LabkitError(f"--data {name}: there is no such folder or set. Did you mean {close[0]!r}?")
    return labkit.folders(folder, size, **prepared)
