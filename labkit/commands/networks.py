"""The commands that use a trained network: `labkit translate`, `export` and `score`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import labkit
from labkit.commands.output import AsJson, Output, Quiet
from labkit.errors import LabkitError

Run = Annotated[Path, Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")]
Step = Annotated[int | None, Option(help="A step that train --keep-every kept.", show_default="the last")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]


def translate(
    source: Annotated[Path, Argument(help="A picture, or a folder of pictures.")],
    target: Annotated[Path, Argument(help="The picture, or the folder, to write.")],
    run: Run,
    step: Step = None,
    direction: Annotated[str, Option(help="AtoB or BtoA.")] = "AtoB",
    size: Annotated[
        str | None,
        Option(help="Resize to a square of so many pixels; 'training': the run's --size.", show_default="its own size"),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Overwrite files that exist.")] = False,
    skip_existing: Annotated[bool, Option("--skip-existing", help="Pass over pictures whose file exists.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Translate a picture or a folder with a trained model."""
    from labkit.devices import pick_device

    output = Output(quiet, as_json)
    with output.working(if_stopped="stopped"):
        run = chosen(run, step)
        load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
        written = labkit.translate(
            load(run, pick_device(device)),
            source,
            target,
            direction,
            size=pixels(size, run),
            overwrite=overwrite,
            skip_existing=skip_existing,
        )
    output.end({"written": [str(file) for file in written]}, [str(file) for file in written])


def export(
    target: Annotated[
        Path, Argument(help="The file to write: .onnx, .pt2 or .safetensors. With --reference, a folder.")
    ],
    run: Run,
    step: Step = None,
    direction: Annotated[str, Option(help="AtoB or BtoA; --reference writes both.")] = "AtoB",
    reference: Annotated[
        bool, Option("--reference", help="Write the networks as the public reference saves them.")
    ] = False,
) -> None:
    """Write a trained network for use without labkit, checked against PyTorch."""
    run = chosen(run, step)
    if reference:
        typer.echo("\n".join(map(str, labkit.export_reference(run, target))))
        return
    path, difference = labkit.export(run, target, direction)
    typer.echo(f"{path}: at most {difference:.1e} from PyTorch, in pictures of two sizes")


def score(
    real: Annotated[Path, Argument(help="A folder of real pictures of the target domain, for example testB.")],
    fake: Annotated[Path, Argument(help="A folder of translations into it, as labkit translate writes them.")],
    weights: Annotated[
        Path | None, Option(help="The file of Inception's weights, if they cannot be downloaded.")
    ] = None,
    device: Device = "auto",
) -> None:
    """FID and KID: how far translations are from real pictures."""
    from labkit.devices import pick_device

    found = labkit.fid_and_kid(real, fake, device=pick_device(device), weights=weights)
    typer.echo(f"FID {found.fid:.2f}, KID {found.kid:.5f} (standard deviation over subsets {found.kid_deviation:.5f})")


def chosen(run: Path, step: int | None) -> Path:
    """The run itself, or its checkpoint of this step."""
    if step is None:
        return run
    from labkit.training import checkpoints

    if run.is_file():
        raise LabkitError(f"--step {step}: {run} is one file. Give --run the folder of a run.")
    return checkpoints.kept_file(run, step)


def pixels(given: str | None, run: Path) -> int | None:
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

    size = checkpoints.load(run)["batches"].get("size")
    if size is None:
        raise LabkitError(f"--size training: {run} was trained with a DataLoader and does not know its size.")
    return size
