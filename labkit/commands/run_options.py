"""Options of `labkit train` that concern the run as a whole: what it logs, keeps, and starts from."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import labkit
from labkit.errors import LabkitError, check_known

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.data.batches import UnpairedData
    from labkit.model import Model
    from labkit.training.callbacks import Callback

Step = Annotated[
    int | None, Option(help="A step whose checkpoint the run kept, see train --keep-every.", show_default="the last")
]


def chosen(run: Path, step: int | None) -> Path:
    """The run itself, or its checkpoint of this step."""
    if step is None:
        return run
    from labkit.training import checkpoints

    if run.is_file():
        raise LabkitError(f"--step {step}: {run} is one file. Give --run the folder of a run.")
    return checkpoints.of_step(run, step)


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


@dataclasses.dataclass
class Keeping:
    """Which checkpoints a run keeps, and where it starts."""

    keep_every: Annotated[
        int | None,
        Option(
            help="Steps between two checkpoints that are kept for good, each with its samples.",
            min=1,
            show_default="none",
        ),
    ] = None
    allow_new_data: Annotated[
        bool,
        Option(
            "--allow-new-data",
            help="Go on although pictures were added or taken away; the epoch under way may repeat or miss some.",
        ),
    ] = False
    init_from: Annotated[
        Path | None,
        Option(help="Start from the weights of a run (folder or checkpoint), or of the public reference (folder)."),
    ] = None

    def callbacks(self) -> "list[Callback]":
        """The callback that keeps checkpoints, if one is wanted."""
        return [] if self.keep_every is None else [labkit.KeepEvery(self.keep_every)]

    def accept(self, data: "UnpairedData", out: Path) -> None:
        """Lets the run in `out` go on with these pictures, if that is wanted."""
        from labkit import ranks
        from labkit.training import checkpoints

        if self.allow_new_data and (out / checkpoints.FILE).exists():
            if ranks.number() == 0:
                labkit.accept_new_data(out, data)
            ranks.all_equal("--allow-new-data", True)  # which no rank passes before rank 0 has written

    def start(self, model: "Model", out: Path, batches: dict[str, Any]) -> list[str]:
        """Looks at the run's folder before any work, and gives a model that begins a run the weights to start from.

        Args:
            model: that will be trained.
            out: folder of the run.
            batches: those settings of the batches that are known before the pictures are read.

        Returns:
            what there is to say of it.

        Raises:
            LabkitError: the run cannot be saved there or resumed, or there are no such weights to start from.
        """
        from labkit import ranks
        from labkit.training import checkpoints, keeping

        if ranks.number() == 0:
            keeping.look_first(out, model, batches)
        if self.init_from is None:
            return []
        if (out / checkpoints.FILE).exists():
            return [f"{out}: this run goes on from its own checkpoint, so --init-from is ignored"]
        labkit.init_from(model, self.init_from)
        return [f"{out}: starts from the weights in {self.init_from}"]


def positive(value: float | None) -> float | None:
    """The number, for typer to check an option with."""
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is no positive number.")
    return value


def few_processes(value: int) -> int:
    """The number of processes, for typer to check an option with: each takes memory, and a machine is soon full."""
    most = max(32, 4 * (os.cpu_count() or 1))
    if value > most:
        raise typer.BadParameter(f"{value} processes are too many for this machine; take at most {most}.")
    return value
