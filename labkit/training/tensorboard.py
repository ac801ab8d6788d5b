"""TensorBoard: losses, learning rates, speed, memory and sample pictures of a run, to look at while it trains."""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.files import append
from labkit.training.callbacks import Callback
from labkit.training.run import Run

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary


class TensorBoard(Callback):
    """Writes what ``tensorboard --logdir FOLDER`` shows.

    At each report: every loss, as its mean since the report before; the learning rates; steps a second; and the peak of
    memory so far, of the GPU if there is one, else of the process. At each sample: its grid. A run that resumes goes on
    in the same folder, and TensorBoard forgets the points of steps that were lost. A disk that is full does not end
    the run: its points are missing.

    Args:
        folder: for the files of events; it is made if it is missing.

    Raises:
        LabkitError: the package tensorboard is not installed.
    """

    def __init__(self, folder: Path | str):
        if not installed():
            raise LabkitError("The package tensorboard is not installed, and its log needs it: pip install tensorboard")
        self.folder = Path(folder)
        self.failed = False

    def on_start(self, run: Run) -> None:
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file, self.first = self.folder / name, run.done + 1
        self.reported, self.at = run.done, time.monotonic()

    def on_report(self, run: Run) -> None:
        from torch.utils.tensorboard.summary import scalar

        new, now = run.done - self.reported, time.monotonic()
        recent = {name: [loss for loss in losses[-new:] if loss == loss] for name, losses in run.losses.items()}
        values = {f"losses/{name}": sum(losses) / len(losses) for name, losses in recent.items() if losses}
        values |= {f"learning rate/{player}": rates[-1] for player, rates in run.rates.items()}
        values["speed/steps a second"] = new / max(now - self.at, 1e-9)
        values |= _memory(run)
        self.reported, self.at = run.done, now
        self._write(run, [scalar(name, value) for name, value in values.items()])

    def on_sample(self, run: Run, grid: Tensor) -> None:
        from torch.utils.tensorboard.summary import image

        self._write(run, [image("samples", grid, dataformats="CHW")])

    def _write(self, run: Run, summaries: list[Summary]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        now = time.time()
        events = [Event(wall_time=now, step=run.done, summary=summary) for summary in summaries]
        if not self.file.exists():  # a file says its format first; then that what follows replaces later steps
            start = Event(wall_time=now, step=self.first, session_log=SessionLog(status=SessionLog.START))
            events = [Event(wall_time=now, file_version="brain.Event:2"), start, *events]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            append(self.file, _records(events))
            self.failed = False
        except OSError as error:
            if not self.failed:
                warnings.warn(
                    f"step {run.done}: {self.file} cannot be written ({error.strerror}). Training goes on, and points "
                    "are missing in TensorBoard.",
                    stacklevel=2,
                )
            self.failed = True


def installed() -> bool:
    """Whether the package tensorboard is."""
    return importlib.util.find_spec("tensorboard") is not None


def _records(events: list[Event]) -> bytes:
    """The events as a file holds them."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    # Not through SummaryWriter: it writes in a thread, which dies with a traceback when the disk is full.
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for event in events:
        writer.write(event.SerializeToString())
    return buffer.getvalue()


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
