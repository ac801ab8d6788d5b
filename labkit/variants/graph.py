"""graph: the whole step is recorded once into a CUDA graph, and from then on launched as one thing."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from labkit.errors import DataError, LabkitError
from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.variants import SpeedUp

ANNOTATIONS: Any = getattr(torch.cuda, "graph_annotations", None)  # None before PyTorch 2.12


class Graph(SpeedUp):
    """Records everything the device does in a step, and replays it with a single launch.

    Differs from the baseline in `run`. A replay does the same work at the same addresses, so everything that changes
    from step to step has to lie at a fixed address: the inputs (pictures and the pools' decisions) are copied there
    before each replay, Adam is fused and reads its count of steps and its learning rate there, and the losses are
    copied out. The first `warmup` steps are ordinary ones, on a stream of their own: in them libraries choose kernels
    and Adam makes its state. A state that is loaded lies elsewhere, so after it the step is recorded again. Source:
    PyTorch's notes "CUDA semantics", section "CUDA Graphs", whole-network capture.

    Improves: the host's time for launches, and so the idle time between kernels. Does not help where the device is busy
    without it, as with large batches. A graph keeps its memory for itself. A profiler sees ranges inside it only with
    PyTorch 2.12 and later, cuda-bindings and a driver of CUDA 13.1.
    """

    name = "graph"
    changes = "the step is one CUDA graph"
    improves = "launches, idle"
    needs = "a GPU, elsewhere it only fuses Adam; batches of one shape; no seam that waits for the device"

    warmup = 2
    stream: torch.cuda.Stream | None = None

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        return None if next(model.parameters()).is_cuda else "there are no CUDA graphs here"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.device = next(self.model.parameters()).device
        self.acts = self.why_inactive(self.model) is None
        self.start_over()
        optimizers = super().build(betas)
        if self.acts:
            for optimizer in optimizers.values():
                if not optimizer.defaults.get("capturable"):
                    raise LabkitError(
                        f"graph: {type(optimizer).__name__} would not be recorded as it is. Give it adam_options(), if "
                        "it takes capturable=True, or leave 'graph' out."
                    )
                for group in optimizer.param_groups:
                    # Fused Adam reads a float32, whatever the weights and PyTorch's default type are.
                    group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=self.device)
        return optimizers

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "fused": True, "capturable": self.acts}

    def start_over(self) -> None:
        """Forgets the recording: the next step is the first again."""
        self.done = 0
        self.static: Batch = {}  # the inputs, where a replay reads them
        self.replay: Callable[[], None] | None = None

    def run(self, batch: Batch) -> dict[str, Tensor]:
        if not self.acts:
            return super().run(batch)
        for name, tensor in batch.items():
            self.static.setdefault(name, torch.empty_like(tensor)).copy_(tensor)
        if self.done < self.warmup:
            self.on_own_stream(self.body)
        else:
            self.replay = self.replay or self.record()
            self.replay()
        self.done += 1
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))

    def inputs(self, real_a: Tensor, real_b: Tensor) -> Batch:
        recorded = self.static.get("real_a", real_a)
        if recorded.shape != real_a.shape:
            raise DataError(
                f"graph: recorded for batches of shape {tuple(recorded.shape)}, not {tuple(real_a.shape)}. "
                "Make another step for it."
            )
        return super().inputs(real_a, real_b)

    @contextmanager
    def mark(self, part: str) -> Iterator[None]:
        """The range launch by launch, and the name of these kernels in the graph while it is captured."""
        # Kernels of the backward pass would have the name of their forward pass, which is another range.
        known = inspect.signature(ANNOTATIONS.mark_kernels).parameters if ANNOTATIONS else {}
        alone = {"backward": False} if "backward" in known else {}
        with super().mark(part), ANNOTATIONS.mark_kernels(part, **alone) if ANNOTATIONS else nullcontext():
            yield

    def body(self) -> None:
        """The step itself, from fixed inputs to `values`."""
        # A weight that autocast had cast before the recording would be cast in no replay.
        with torch.autocast(self.device.type, enabled=False, cache_enabled=False):
            losses = super().run(dict(self.static))
        self.names, self.values = list(losses), torch.stack(list(losses.values()))

    def record(self) -> Callable[[], None]:
        """Records `body`, for replays. Raises `LabkitError` if it cannot be recorded, except for lack of memory."""
        try:
            return self.capture(self.body)
        except RuntimeError as error:
            for optimizer in self.optimizers.values():
                optimizer.zero_grad()  # the gradients there are were never computed
            first = error.__context__ or error  # ending a recording that failed fails in its turn
            if isinstance(first, torch.OutOfMemoryError):
                raise first from None
            raise LabkitError(
                f"graph: the step cannot be recorded ({first}). Nothing in it may wait "
                "for the device: no .item(), no print, no `if` on its value."
            ) from error

    def on_own_stream(self, body: Callable[[], None]) -> None:
        """Runs `body` on the stream that will record, as PyTorch asks of the steps before a recording."""
        main = torch.cuda.current_stream(self.device)
        self.stream = self.stream or torch.cuda.Stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            body()
        main.wait_stream(self.stream)

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """A function that replays the device's work in `body`. None of it is done yet."""
        graph = torch.cuda.CUDAGraph()
        # The outer `with` leaves the stream even if ending the recording fails, which the inner one does not. Only this
        # thread's calls are watched: the loader's may pin memory meanwhile.
        options: Any = {"enable_annotations": True} if ANNOTATIONS else {}  # without effect on older drivers
        recording = torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local", **options)
        with torch.cuda.stream(self.stream), recording:
            body()
        return graph.replay

    def __getstate__(self) -> dict[str, Any]:
        """A copy records its own graph: this one reads and writes at its own addresses."""
        return {**vars(self), "done": 0, "static": {}, "replay": None, "stream": None}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.start_over()
