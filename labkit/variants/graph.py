"""graph: the whole step is recorded once into a CUDA graph, and from then on launched as one thing."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.errors import DataError, LabkitError
from labkit.models.pool import Pool
from labkit.variants.common import NeedsFusedAdam


class Graph(NeedsFusedAdam):
    """Records everything the device does in a step, and replays it with a single launch.

    Differs from the baseline in `__call__`. A replay does the same work at the same addresses, so whatever changes
    from step to step has to lie at a fixed one: the batch and the pools' draws are copied there before each replay,
    Adam is fused and reads its count of steps and its rate there, and the losses are copied out. The first `warmup`
    steps are ordinary ones, on a stream of their own: in them libraries choose kernels and Adam makes its state. A
    state that is loaded lies elsewhere, so after it the step is recorded anew. Source: PyTorch's notes "CUDA
    semantics", section "CUDA Graphs", whole-network capture.

    Moves: the host's time for launches, and so the idle time between kernels. Does not help where the device is busy
    without it, as with large batches. A graph keeps its memory for itself, and a profiler sees no ranges inside it.
    """

    name = "graph"
    place = 0
    seam = "build, adam_options, __call__, recall"
    changes = "the step is one CUDA graph"
    moves = "launches, idle"
    needs = "a GPU, elsewhere it only fuses Adam; batches of one shape; no seam that waits for the device"
    tolerance = "exact"

    warmup = 2
    stream: torch.cuda.Stream | None = None
    warned = False

    @staticmethod
    def inactive(model: nn.Module) -> str | None:
        return None if next(model.parameters()).is_cuda else "there are no CUDA graphs here"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.device = next(self.model.parameters()).device
        self.acts = self.inactive(self.model) is None
        self.lr_now: dict[str, float] = {}
        self.start_over()
        optimizers = super().build(betas)
        self.rates = {player: torch.zeros((), device=self.device) for player in optimizers}  # float32, for fused Adam
        self.hold_rates(optimizers)
        return optimizers

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "capturable": self.acts}

    def start_over(self) -> None:
        """Forgets what was recorded: the next step is the first again."""
        self.done, self.inputs, self.replay = 0, None, None
        self.draws: list[tuple[Pool, Tensor]] = []  # whose draws a replay reads where
        self.recording = False

    def hold_rates(self, optimizers: dict[str, torch.optim.Optimizer]) -> None:
        """Puts each learning rate where the graph reads it; `lr_now` keeps it as the number it is."""
        if not self.acts:
            return
        for player, optimizer in optimizers.items():
            for group in optimizer.param_groups:
                self.lr_now[player] = group["lr"]
                group["lr"] = self.rates[player].fill_(group["lr"])

    def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
        if not self.acts:
            if not self.warned:
                self.warned = True
                warnings.warn("graph: no CUDA graphs here, each step is launched anew", stacklevel=2)
            return super().__call__(real_a, real_b)
        self.check(real_a, real_b)
        self.take(real_a, real_b)
        if self.done < self.warmup:
            self.apart(self.body)
        else:
            if self.replay is None:
                self.record()
            for pool, rows in self.draws:
                rows.copy_(pool.draw(rows.shape[1]).on(self.device))
            self.replay()
        self.done += 1
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))

    def take(self, real_a: Tensor, real_b: Tensor) -> None:
        """Copies the batch to where the graph reads it."""
        if self.inputs is None:
            self.inputs = torch.empty_like(real_a), torch.empty_like(real_b)
        for static, pictures in zip(self.inputs, (real_a, real_b), strict=True):
            if pictures.shape != static.shape:
                raise DataError(
                    f"graph: the step is recorded for batches of shape {tuple(static.shape)}, this one has "
                    f"{tuple(pictures.shape)}. Keep to one shape, or make another step from the model for it."
                )
        for static, pictures in zip(self.inputs, (real_a, real_b), strict=True):
            static.copy_(pictures)

    def body(self) -> None:
        """The step itself, from fixed inputs to `values`."""
        # A weight that autocast had cast before the recording would be cast in no replay.
        with torch.autocast(self.device.type, enabled=False, cache_enabled=False):
            losses = super().__call__(*self.inputs)
        self.names, self.values = list(losses), torch.stack(list(losses.values()))

    def recall(self, pool: Pool, fake: Tensor) -> Tensor:
        if not self.recording or pool.size == 0:
            return super().recall(pool, fake)
        rows = torch.empty(4, len(fake), dtype=torch.int64, device=self.device)  # no work: filled before each replay
        self.draws.append((pool, rows))
        return pool.exchange(fake, rows)

    def record(self) -> None:
        """Records `body`. Raises `LabkitError` if it cannot be recorded, unless memory does not suffice."""
        self.draws, self.recording = [], True
        try:
            self.replay = self.capture(self.body)
        except RuntimeError as error:
            for optimizer in self.optimizers.values():
                optimizer.zero_grad()  # what there is was never computed
            first = error.__context__ or error  # ending a recording that failed fails in its turn
            if isinstance(first, torch.OutOfMemoryError):
                raise first from None
            raise LabkitError(
                f"graph: the step cannot be recorded ({first}). Nothing in it may wait for the device: no .item(), "
                "no print of a tensor, no `if` on its value in a seam."
            ) from error
        finally:
            self.recording = False

    def apart(self, body: Callable[[], None]) -> None:
        """Runs `body` on the stream that will record, as PyTorch asks of what comes before a recording."""
        main = torch.cuda.current_stream(self.device)
        self.stream = self.stream or torch.cuda.Stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            body()
        main.wait_stream(self.stream)

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """A function that replays what `body` gives the device to do; nothing is done yet."""
        graph = torch.cuda.CUDAGraph()
        # The outer `with` leaves the stream even if ending the recording fails, which the inner one does not. Only this
        # thread's calls are watched: the loader's may pin memory meanwhile.
        recording = torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local")
        with torch.cuda.stream(self.stream), recording:
            body()
        return graph.replay

    def scale_lr(self, factor: float) -> None:
        super().scale_lr(factor)
        self.hold_rates(self.optimizers)

    def state_dict(self) -> dict:
        state = super().state_dict()
        for player, rate in self.lr_now.items():
            for group in state["optimizers"][player]["param_groups"]:
                group["lr"] = rate
        return state

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.start_over()
        self.hold_rates(self.optimizers)
