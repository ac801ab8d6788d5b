"""The commands that use a trained network: `labkit translate`, `export` and `score`."""

import importlib
from pathlib import Path

import typer

import labkit
from labkit.commands import printing

WRITERS = {".onnx": "onnxruntime", ".safetensors": "safetensors"}  # modules that PyTorch does not bring


def translate(
    source: Path,
    target: Path,
    *,
    run: Path,
    step: int | None = None,
    direction: str = "AtoB",
    size: int | None = None,
    overwrite: bool = False,
    skip_existing: bool = False,
    device: str = "auto",
) -> None:
    """Translate a picture or a folder with a trained model.

    Args:
        source: A picture, or a folder of pictures.
        target: The picture, or the folder, to write.

    Options:
        run: Folder of a run, its checkpoint, or a generator of the public reference (.pth).
        step: A step that train --keep-every kept, in the place of the last.
        direction: AtoB or BtoA.
        size: Resize to a square of this many pixels. By default, pictures keep their size.
        overwrite: Overwrite files that exist.
        skip_existing: Pass over pictures whose file exists.
        device: auto, cpu or cuda.
    """
    from labkit.training.translate import targets_of

    with printing():
        run = at_step(run, step)
        load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
        model = load(run, labkit.pick_device(device))
        wanted = targets_of(source, target, True, skip_existing)
        written = labkit.translate(
            model, source, target, direction, size=size, overwrite=overwrite, skip_existing=skip_existing
        )
        typer.echo("\n".join(map(labkit.errors.shown, written)))
        if len(written) < len(wanted):  # a warning has named those that are left out
            raise typer.Exit(1)


def export(target: Path, *, run: Path, step: int | None = None, direction: str = "AtoB") -> None:
    """Write a trained network for use without labkit, checked against PyTorch.

    Args:
        target: The file to write: .onnx, .pt2 or .safetensors.

    Options:
        run: Folder of a run, its checkpoint, or a generator of the public reference (.pth).
        step: A step that train --keep-every kept, in the place of the last.
        direction: AtoB or BtoA.
    """
    # its extra is named, which brings PyTorch, too
    importlib.import_module(WRITERS.get(target.suffix, "torch"))
    difference = labkit.export(at_step(run, step), target, direction)
    typer.echo(f"{target}: at most {difference:.1e} from PyTorch, in pictures of two sizes")


def score(real: Path, fake: Path, *, device: str = "auto") -> None:
    """FID and KID: how far translations are from real pictures.

    Args:
        real: A folder of real pictures of the target domain, for example testB.
        fake: A folder of translations into it, as labkit translate writes them.

    Options:
        device: auto, cpu or cuda.
    """
    importlib.import_module("torchmetrics")  # its extra is named, which brings PyTorch, too
    from labkit.measure.scores import fid_and_kid

    fid, kid, deviation = fid_and_kid(real, fake, device=device)
    typer.echo(f"FID {fid:.2f}, KID {kid:.5f} (standard deviation over subsets {deviation:.5f})")


def at_step(run: Path, step: int | None) -> Path:
    """The run itself, or its checkpoint of this step."""
    from labkit.training import checkpoints

    return run if step is None else checkpoints.kept_file(run, step)
