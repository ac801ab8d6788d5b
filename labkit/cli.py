"""The command line: train a CycleGAN on pictures, and translate pictures with it."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Annotated

import typer

from labkit import recipes
from labkit.errors import LabkitError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for checkpoint and sample pictures; goes on if it holds a run.")],
    data: Annotated[
        str, typer.Option(help="'fruit', a public set ('horse2zebra'), or a folder with trainA and trainB.")
    ] = "fruit",
    steps: Annotated[int | None, typer.Option(help="Steps to train up to.", show_default="by data")] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures of each domain in a step.")] = 1,
    size: Annotated[int | None, typer.Option(help="Pixels to train on, square.", show_default="by data")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.", show_default="by data")] = None,
    decay_steps: Annotated[
        int | None, typer.Option(help="Last steps, over which the learning rate falls to 0.", show_default="by data")
    ] = None,
    generator: Annotated[str | None, typer.Option(help="resnet_9blocks, unet_256, ...", show_default="by data")] = None,
    ngf: Annotated[
        int | None, typer.Option(help="Filters in a generator's first layer.", show_default="by data")
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="instance, batch, none or instance_blocks.", show_default="by data")
    ] = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="Processes that prepare batches.")] = 2,
    seed: Annotated[int, typer.Option(help="Settles first weights and batches.")] = 0,
    save_minutes: Annotated[float, typer.Option(help="Minutes between two checkpoints.")] = 5.0,
) -> None:
    """Train a CycleGAN; run the same again to go on after a stop."""
    import torch

    import labkit
    from labkit.devices import pick_device

    recipe = recipes.FRUIT if data == "fruit" else recipes.PHOTOGRAPHS
    where = pick_device(device)
    pictures = _data(data, recipe.size if size is None else size, seed)
    chosen = {name: value for name, value in dict(generator=generator, ngf=ngf, norm=norm).items() if value is not None}
    torch.manual_seed(seed)
    model = labkit.CycleGAN(**{**recipe.model, **chosen}).to(where)
    torch.backends.cudnn.benchmark = True  # pictures keep their size, so cuDNN may look for its fastest kernels
    steps = recipe.steps if steps is None else steps
    decay_steps = round(recipe.decay * steps) if decay_steps is None else decay_steps
    started = time.process_time()
    try:
        labkit.fit(
            labkit.make_step(model, lr=recipe.lr if lr is None else lr),
            pictures,
            steps,
            batch_size,
            checkpoint=out,
            seed=seed,
            workers=workers,
            schedule=labkit.linear_schedule(steps - decay_steps, decay_steps) if decay_steps else None,
            save_minutes=save_minutes,
        )
    except KeyboardInterrupt as stopped:
        typer.echo(f"labkit: {stopped or 'stopped'}", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{out}: {steps} steps done, {time.process_time() - started:.0f} CPU seconds in this process")
    if data == "fruit":
        scores = labkit.quality(model, pictures)
        typer.echo(f"fg {scores['fg']:.2f} %, bg {scores['bg']:.2f} % (lower is better)")


@app.command()
def translate(
    source: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    target: Annotated[Path, typer.Argument(help="The picture, or the folder, to write.")],
    run: Annotated[
        Path, typer.Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")
    ],
    direction: Annotated[str, typer.Option(help="AtoB or BtoA.")] = "AtoB",
    device: Device = "auto",
) -> None:
    """Translate a picture or a folder with a trained model."""
    import labkit
    from labkit.devices import pick_device

    load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
    for written in labkit.translate(load(run, pick_device(device)), source, target, direction):
        typer.echo(written)


def _data(name: str, size: int, seed: int):  # noqa: ANN202 - importing the type would import torch for --help
    import labkit
    from labkit.data.public import PUBLIC_SETS

    if name == "fruit":
        return labkit.fruit(size=size, seed=seed)
    if name in PUBLIC_SETS and not Path(name).is_dir():
        return labkit.folders(labkit.download(name), size=size)
    return labkit.folders(name, size=size)


def main() -> None:
    """Runs the command line; what the user can mend is said in one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    try:
        app()
    except LabkitError as error:
        print(f"labkit: {error}", file=sys.stderr)
        sys.exit(1)
