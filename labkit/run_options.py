"""Options of `labkit train` that concern the run as a whole: what it logs, keeps, and starts from."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labkit.errors import LabkitError, check_known

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.training.callbacks import Callback


@dataclasses.dataclass
class Logging:
    """Where a run logs its losses and pictures, beside losses.csv."""

    log: Annotated[
        str,
        Option(
            help="tensorboard: curves and sample pictures into the folder tensorboard of --out; or none.",
            show_default="tensorboard if it is installed",
        ),
    ] = "auto"

    def callbacks(self, out: Path) -> "list[Callback]":
        """The loggers that were chosen, for the run in the folder `out`."""
        check_known("--log", self.log, ("auto", "tensorboard", "none"))
        from labkit.training import tensorboard

        if self.log == "none" or self.log == "auto" and not tensorboard.installed():
            return []
        try:
            return [tensorboard.TensorBoard(out / "tensorboard")]
        except LabkitError as error:
            raise LabkitError(f"--log {self.log}: {error}") from error
