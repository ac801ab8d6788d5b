"""The command that trains: `labkit train`."""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import typer

import labkit
from labkit import recipes
from labkit.commands import Setup, names_in, printing
from labkit.errors import LabkitError
from labkit.settings import defaults_of
from labtrace.errors import check_known, did_you_mean


def defaults() -> str:
    """The defaults that depend on the pictures and on the model, for the end of --help."""
    lines = ["Defaults:"]
    for kind, both in recipes.BY_KIND.items():
        for data, recipe in zip(("fruit", "photographs"), both, strict=True):
            settings = {**vars(recipe), **(recipe.model or defaults_of(kind))}
            named = [f"{name} {value}" for name, value in settings.items() if value and name not in ("kind", "model")]
            lines.append(f"{kind}, {data}: {', '.join(named)}.")
    return "\n\n".join(lines)


def train(
    *,
    preprocess: str = "resize_and_crop",
    load_size: int | None = None,
    no_flip: bool = False,
    init_from: Path | None = None,
    steps: int | None = None,
    lr: str | None = None,
    lr_policy: str = "linear",
    decay_steps: int | None = None,
    ema: float = 0.0,
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
        preprocess: resize_and_crop, crop, or scale_width_and_crop.
        load_size: Pixels to resize to before the crop. By default, 286/256 of --size.
        no_flip: Do not mirror training pictures.

    Networks:
        init_from: Start with the weights of a run, or of the reference (latest_net_G.pth: A to B).

    Schedule:
        steps: Steps to train up to.
        lr: Adam's learning rate, or one for each player: generators=2e-4,discriminators=1e-4.
        lr_policy: How the learning rate falls: linear, step or cosine.
        ema: Average the weights over steps, to translate with: 0.999, for example (0: never).
        decay_steps: With linear, the last steps, in which it falls. With step, the steps between falls.
        seed: Seed of the initial weights and the batches.

    Saving, and what is printed:
        out: Run folder; resumes the run in it.
        save_minutes: Minutes between saves.
        keep_every: Keep a checkpoint every N steps.
        scores: Score the run this many times into scores.csv, and keep best.pt (0: never).
        no_tensorboard: Write no TensorBoard log.
        quiet: Print errors only.
        as_json: Print one JSON object only.

    Several processes, and speed:
        speedups: Names, with commas (bf16,batched), or auto, which measures them and takes those that help.
        workers: Processes that prepare batches.
        processes: Processes that share each batch.

    Other trainers:
        epoch, epochs, n_epochs, niter, max_epochs, num_epochs: Here --steps counts updates. An epoch of 1,000 pictures
            has 1,000 of them at --batch-size 1.
        n_epochs_decay, niter_decay: Here --decay-steps counts updates.
        name, checkpoints_dir, output_dir, save_dir, results_dir: Here --out is the run's folder.
        continue_train, resume: Here the same command resumes the run in --out.
        dataroot, data_dir, data_path, dataset: Here --data is a folder with trainA and trainB.
        batch, bs: Here it is --batch-size.
        crop_size, image_size, img_size, imgsz, resolution: Here --size is the side of the pictures in training.
        netg: Here it is --generator.
        netd: Here it is --discriminator.
        gpu_ids, gpu, gpus, cuda: Here --device is auto, cpu or cuda, and --processes shares batches.
        num_threads, num_workers, threads: Here --workers is the number of processes that prepare batches.
        learning_rate: Here it is --lr.
        input_nc, output_nc: Here they are --channels-a and --channels-b.
        amp, fp16, bf16, mixed_precision, compile: Here it is a name in --speedups, such as --speedups bf16.
    """
    from labkit.measure.autotune import remembered
    from labkit.measure.scores import Scores
    from labkit.training import checkpoints

    if processes > 1 and not labkit.ranks.started_by_torchrun():
        raise typer.Exit(labkit.ranks.start(processes, sys.argv[1:]))
    started = time.monotonic()
    setup = Setup(steps, lr, **model_options)
    recipe, data = setup.recipe, setup.data
    with printing(quiet, as_json):
        network = setup.make(seed)
        if init_from and not (out / checkpoints.FILE).exists():  # else the run continues from its own checkpoint
            loaded = labkit.init_from(network, init_from)
            new = ", ".join(name for name, _ in network.named_children() if name not in loaded)
            rest = f". {new} start from random weights" if new else ""
            typer.echo(f"{out}: starts from the weights in {init_from}: {', '.join(loaded)}{rest}")
        prepared = dict(preprocess=preprocess, load_size=load_size, flip=not no_flip, channels=network.channels)
        pictures = open_pictures(data, recipe.size, seed, prepared, out)
        typer.echo(f"{data}: {len(pictures.train_a)} pictures of A, {len(pictures.train_b)} of B")
        names = names_in(speedups)
        if names == ["auto"]:
            names, reasons = remembered(out, setup.make, setup.noise())
            typer.echo("\n".join(reasons))
        if "compile" in names:
            typer.echo("the networks are compiled in the first step, which can take minutes")
        callbacks: list[labkit.Callback] = []
        if scores:
            callbacks.append(Scores(pictures, max(1, recipe.steps // scores)))
        if keep_every:
            callbacks.append(labkit.KeepEvery(keep_every))
        if not no_tensorboard and importlib.util.find_spec("tensorboard"):
            callbacks.append(labkit.TensorBoard(out / "tensorboard"))
        run = labkit.fit(
            setup.step(network, names),
            pictures,
            recipe.steps,
            setup.batch_size,
            checkpoint=out,
            seed=seed,
            workers=workers,
            schedule=schedule(lr_policy, decay_steps, recipe),
            ema=ema,
            save_minutes=save_minutes,
            callbacks=callbacks,
        )
        quality = labkit.quality(run.translating, pictures) if data == "fruit" else None
        typer.echo(f"{out}: {run.done} steps done, {time.process_time():.0f} CPU seconds in this process")
        if quality is not None:
            typer.echo(f"fg {quality['fg']:.2f} %, bg {quality['bg']:.2f} % (lower is better)")
        typer.echo(f"next: labkit translate SOURCE TARGET --run {quote(str(out))}")
    if as_json:
        last, seconds = {name: losses[-1] for name, losses in run.losses.items()}, time.monotonic() - started
        result = {"folder": str(out), "steps": run.done, "losses": last, "seconds": seconds, "scores": quality}
        typer.echo(json.dumps(result))


def schedule(policy: str, decay: int | None, recipe: recipes.Recipe) -> Callable[[int], float]:
    """From the number of steps done to the factor on the learning rate, as given now: it applies to a resumed run, too.

    Raises:
        LabkitError: the policy is unknown, or the number does not suit it.
    """
    from labkit.training import schedules

    check_known("lr-policy", policy, ("linear", "step", "cosine"))
    if policy == "step":
        return schedules.step_schedule(decay or max(1, recipe.steps // 4))
    if policy == "cosine":
        if decay is not None:
            raise LabkitError("--decay-steps belongs to --lr-policy linear or step, not to cosine.")
        return schedules.cosine_schedule(recipe.steps)
    decay = round(recipe.decay * recipe.steps) if decay is None else decay
    return schedules.linear_schedule(recipe.steps - decay, decay)


def open_pictures(data: str, size: int, seed: int, prepared: dict[str, Any], checked: Path) -> Any:
    """Fruit, or the pictures of a folder or of a public set, which is downloaded.

    Raises:
        LabkitError: there are no such pictures, or they cannot be prepared like this.
    """
    from filelock import FileLock

    from labkit.data.folders import PUBLIC_SETS

    if data == "fruit":
        if prepared != dict(preprocess="resize_and_crop", load_size=None, flip=True, channels=(3, 3)):
            raise LabkitError("--preprocess, --load-size, --channels-a, --channels-b and --no-flip are for folders.")
        return labkit.fruit(size=size, seed=seed)
    if data in PUBLIC_SETS and not Path(data).is_dir():
        Path("datasets").mkdir(exist_ok=True)
        with FileLock("datasets/.lock"):  # one process fetches it, and the others wait
            data = str(labkit.download(data))
    if not (folder := Path(data).expanduser().absolute()).exists():
        raise LabkitError(
            f"There is no {folder} and no set of this name{did_you_mean(data, ['fruit', *PUBLIC_SETS])}. "
            f"--data takes a folder with trainA and trainB, fruit, or a public set: {', '.join(PUBLIC_SETS)}."
        )
    return labkit.folders(data, size, **prepared, checked=checked)
