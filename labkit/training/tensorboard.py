"""TensorBoard: losses, learning rates, speed, memory and sample pictures of a run, to look at while it trains."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.training.callbacks import Callback
from labkit.training.run import Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Callback):
    """Writes what ``tensorboard --logdir FOLDER`` shows.

    At each report: every loss, as its mean since the report before; the learning rates; steps a second; and the peak of
    memory so far, of the GPU if there is one, else of the process. At each sample: its grid. A run that resumes goes on
    in the same folder, and TensorBoard forgets the points of steps that were lost.

    Args:
        folder: for the files of events; it is made if it is missing.

    Raises:
        LabkitError: the package tensorboard is not installed.
    """

    def __init__(self, folder: Path | str):
        if not installed():
            raise LabkitError("The package tensorboard is not installed, and its log needs it: pip install tensorboard")
        self.folder = Path(folder)
        self.writer: SummaryWriter | None = None

    def on_start(self, run: Run) -> None:
        self.first = run.done + 1
        self.reported, self.at = run.done, time.monotonic()

    def on_report(self, run: Run) -> None:
        new, now = run.done - self.reported, time.monotonic()
        recent = {name: [loss for loss in losses[-new:] if loss == loss] for name, losses in run.losses.items()}
        values = {f"losses/{name}": sum(losses) / len(losses) for name, losses in recent.items() if losses}
        values |= {f"learning rate/{player}": rates[-1] for player, rates in run.rates.items()}
        values["speed/steps a second"] = new / max(now - self.at, 1e-9)
        values |= _memory(run)
        self.reported, self.at = run.done, now
        writer = self._open()
        for name, value in values.items():
            writer.add_scalar(name, value, run.done)
        writer.flush()

    def on_sample(self, run: Run, grid: Tensor) -> None:
        self._open().add_image("samples", grid, run.done)

    def on_end(self, run: Run) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _open(self) -> SummaryWriter:
        if self.writer is None:  # a run that is done has nothing to add
            from torch.utils.tensorboard import SummaryWriter  # takes a second

            self.writer = SummaryWriter(str(self.folder), purge_step=self.first)
        return self.writer


def installed() -> bool:
    """Whether the package tensorboard is."""
    return importlib.util.find_spec("tensorboard") is not None


def _memory(run: Run) -> dict[str, float]:
    """The peak of memory so far, in GB, by the name of its curve."""
    device = next(run.model.parameters()).device
    if device.type == "cuda":
        return {"memory/GPU peak, GB": torch.cuda.max_memory_allocated(device) / 1e9}
    try:
        import resource
    except ImportError:  # Windows
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"memory/process peak, GB": peak / 1e9}
