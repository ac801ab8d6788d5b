"""The command `labkit score`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from labkit.commands.options import Device


def score(
    real: Annotated[Path, typer.Argument(help="A folder of real pictures of the target domain, for example testB.")],
    fake: Annotated[Path, typer.Argument(help="A folder of translations into it, as labkit translate writes them.")],
    weights: Annotated[
        Path | None, Option(help="The file of Inception's weights, if they cannot be downloaded.")
    ] = None,
    device: Device = "auto",
) -> None:
    """FID and KID: how far translations are from real pictures."""
    from labkit.devices import pick_device
    from labkit.measure.distances import fid_and_kid

    found = fid_and_kid(real, fake, device=pick_device(device), weights=weights)
    typer.echo(f"FID {found.fid:.2f}, KID {found.kid:.5f} (standard deviation over subsets {found.kid_deviation:.5f})")
