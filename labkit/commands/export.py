"""The command `labkit export`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from labkit.commands.run_options import Step, chosen


def export(
    target: Annotated[
        Path, typer.Argument(help="The file to write: .onnx, .pt2 or .safetensors. With --reference, a folder.")
    ],
    run: Annotated[
        Path, Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")
    ],
    step: Step = None,
    direction: Annotated[str, Option(help="AtoB or BtoA; --reference writes both.")] = "AtoB",
    reference: Annotated[
        bool, Option("--reference", help="Write the networks as the public reference saves them.")
    ] = False,
) -> None:
    """Write a trained network for use without labkit, checked against PyTorch."""
    import labkit
    from labkit.training.reference_weights import reference_commands

    run = chosen(run, step)
    if reference:
        model, name = labkit.load_model(run), target.resolve().name
        typer.echo("\n".join(map(str, labkit.export_reference(model, target))))
        typer.echo(f"In the public reference, with these files in its folder checkpoints/{name}:")
        typer.echo("\n".join(reference_commands(model, name)))
        return
    path, difference = labkit.export(run, target, direction)
    if difference is None:
        typer.echo(f"{path}: not compared with PyTorch, for want of ONNX Runtime: pip install onnxruntime")
    else:
        typer.echo(f"{path}: at most {difference:.1e} from PyTorch, in pictures of five sizes")
