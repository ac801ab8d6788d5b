"""A host that launches work onto the streams of its GPUs, and the recording that torch.profiler would make: SIMULATED.

Nothing is computed: the host's clock continues, and each stream runs what was launched onto it, in order. All times are
in microseconds.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labtrace.files import atomic_write

Lane = tuple[int, int]  # the number of a GPU, and of a stream there
FIRST, SECOND, OTHER_GPU = (0, 7), (0, 20), (1, 7)
MAIN, AUTOGRAD = 5000, 5001  # threads of the host; the first has the number of the process
QUEUE = 1000  # launches that can wait in a stream: the next one has to wait on the host
PAUSE_US, LATENCY_US = 0.9, 2.8  # between two kernels of a stream; from the end of a launch to the begin of its kernel
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
# Operators of the forward and the backward pass, and the kernel's share of `Process.kernel_us`
LAYER: tuple[tuple[str, str, float], ...] = (
    ("aten::mm", "MmBackward0", 1.0),
    ("aten::addmm", "AddmmBackward0", 1.0),
    ("aten::gelu", "GeluBackward0", 0.6),
    ("aten::native_layer_norm", "NativeLayerNormBackward0", 0.4),
)
TO_HOST = "Memcpy DtoH (Device -> Pageable)"


class Process:
    """A rank of a training: its host and its GPUs.

    All that is random is drawn first, so it is the same with and without a fault and, but for noise, in all ranks.

    Args:
        seed: of all that is drawn.
        rank, ranks: which one it is, of how many.
        names: lists of names from which one is drawn: those of [names] in faults.toml.
        layers: operators of a forward pass.
        kernel_us: the time of a large kernel. 70 to 130 % of both of these are drawn.
        pace: if not 0, the host's time for a step is this share of the GPU's, and it is the same for each operator. So
            the host is behind in the forward pass, and ahead after the backward pass.

    Attributes:
        now: the host's clock.
        free: when the last work of each lane ends.
        step: the number of the current step, of `steps`.
        some: three steps, neither the first nor next to each other.
        faulty: one of the ranks, not the first.
        size: a factor from 0.7 to 1.3, for how long a fault lasts.
        second: a factor from 0.4 to 1.3, for how long a cause behind it lasts.
        host_us: the host's time for an operator without its launch.
        backward: how many times as long as in the forward pass a kernel takes in the backward pass.
        kernels: names, in the order of `LAYER`.
        culprit: the name of what the fault may be.
        slowness: a factor on the time of kernels.
        sending: how many steps' time an exchange of gradients between ranks takes.
        early: how many of the step's kernels run beside it.
        begins: when the work of each lane began.
        slice_us: another process takes the GPU for so long, each time that this one had it for as long.
    """

    def __init__(
        self, seed: str, rank: int, ranks: int, names: dict, layers: int = 16, kernel_us: float = 300, pace: float = 0
    ) -> None:
        draw, self.noise = random.Random(seed), random.Random(f"{seed}, rank {rank}")
        drawn = {kind: [draw.choice(choices), draw.choice(choices)] for kind, choices in names.items()}
        self.kernels = [*drawn["products"], drawn["pointwise"][0], drawn["norms"][0]]
        self.gpu, self.culprit, self.faulty = drawn["gpus"][0], drawn["culprits"][0], draw.randrange(ranks - 1 or 1) + 1
        varied = [usual * draw.uniform(0.7, 1.3) for usual in (1.0, kernel_us, 9.0, layers)]
        self.size, self.kernel_us, self.host_us, self.layers = *varied[:3], round(varied[3])
        self.rank, self.ranks, self.steps = rank, ranks, draw.randint(9, 15)
        self.some = [2 * half for half in draw.sample(range(1, (self.steps + 1) // 2), 3)]
        self.now, self.thread, self.step, self.backward = 5e7, MAIN, 0, 1.6
        self.slowness, self.slice_us, self._used_us, self._correlation = 1.0, 0.0, 0.0, 0
        self.sending, self.early, self.second = 0.01, 0, draw.uniform(0.4, 1.3)
        self.events: list[dict[str, Any]] = []
        self.free: dict[Lane, float] = defaultdict(float)
        self.begins: dict[Lane, list[float]] = defaultdict(list)
        if pace:
            self.backward = 3 * self.size + 0.6
            self.host_us = (1 + (pace - 1) * self.second) * self.times(1) / self.size / (2 * self.layers) - 4

    def times(self, usual: float) -> float:
        """About so many times as long as the kernels of both passes take."""
        return usual * self.size * sum(us for *_, us in self.passes())

    def event(self, name: str, begin: float, end: float, category: str = "", lane: Lane | None = None) -> None:
        """Records an event: of the host, whose category its name shows unless it is given, or a lane's work."""
        shown = "user_annotation" if "#" in name else "python_function" if ".py(" in name else "cpu_op"
        arguments = {"correlation": self._correlation} if lane or category else {}
        if lane:
            shown = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            arguments |= {"device": lane[0], "stream": lane[1]}
        pid, tid = lane or (MAIN, self.thread)
        begin, end = round(begin, 3), round(end, 3)  # the profiler's times are whole nanoseconds
        place = {"ph": "X", "cat": category or shown, "name": name, "pid": pid, "tid": tid, "args": arguments}
        self.events.append(place | {"ts": begin, "dur": round(end - begin, 3)})

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Records what the host does meanwhile as an event, unless it has no name."""
        begin = self.now
        yield
        if name:
            self.event(name, begin, self.now)

    def work(self, times: float, name: str | None = None) -> None:
        """The host does something else for so many steps' time, in an event of this name or `culprit`'s."""
        with self.within(self.culprit if name is None else name):
            self.now += self.times(times)

    def call(self, name: str, us: float = 4.0, until: float = 0.0) -> None:
        """A call of the CUDA runtime, which may have to wait until then."""
        begin, self._correlation = self.now, self._correlation + 1
        self.now = max(begin + us, until)
        self.event(name, begin, self.now, "cuda_runtime")

    def run(self, name: str, begin: float, us: float, lane: Lane = FIRST) -> float:
        """The work that the last call launched; returns its end, as do all methods that launch."""
        if not name.startswith(("Memcpy", "nccl")):
            us *= self.slowness * self.noise.uniform(0.99, 1.01)
        self.event(name, begin, begin + us, lane=lane)
        self.begins[lane].append(begin)
        self.free[lane] = begin + us
        return begin + us

    def launch(self, name: str, us: float, call_us: float = 4.0, lane: Lane = FIRST, recorded: bool = True) -> float:
        """Launches a kernel, or a copy if its name is that of one. The launch may be before the recording."""
        begins, since = self.begins[lane], self.now
        room = begins[-QUEUE] + 2 if len(begins) >= QUEUE else 0.0
        self.call("cudaMemcpyAsync" if name.startswith("Memcpy") else "cudaLaunchKernel", call_us, room)
        if not recorded:
            self.events.pop()
            self.now = since
        self._used_us += us
        if 0 < self.slice_us < self._used_us:
            self._used_us, self.free[lane] = 0.0, max(self.free[lane], self.now) + self.slice_us
        return self.run(name, max(self.now + LATENCY_US, self.free[lane] + PAUSE_US), us, lane)

    def operator(self, name: str, kernel: str, us: float, **launch: Any) -> float:
        """An operator that launches one kernel."""
        with self.within(name):
            self.now += 0.7 * self.host_us
            end = self.launch(kernel, us, **launch)
            self.now += 0.3 * self.host_us
        return end

    def graph(self, kernels: Sequence[tuple[str, float]], pause_us: float = PAUSE_US, call_us: float = 15.0) -> float:
        """Launches a CUDA graph of these kernels, by name and time."""
        self.call("cudaGraphLaunch", call_us)
        end = max(self.now + LATENCY_US, self.free[FIRST] + PAUSE_US) - pause_us
        for name, us in kernels:
            end = self.run(name, end + pause_us, us)
        return end

    def wait(self, call: str = "cudaStreamSynchronize", until: float = 0.0) -> None:
        """The host waits for all work, and until then."""
        self.call(call, 5.0, max(until, max(self.free.values(), default=0.0)) + 3)

    def read(self, times: float = 0.0) -> None:
        """Copies to pageable memory and waits for the copy, as `.item()` does, which takes hardly any time."""
        with self.within("aten::_local_scalar_dense"):
            end = self.launch(TO_HOST, 2 + self.times(times))
            self.call("cudaStreamSynchronize", 4.0, end + 3)
            self.now += 3

    def passes(self) -> Iterator[tuple[int, str, str, float]]:
        """Thread, operator, kernel and time of all that the forward and the backward pass launch."""
        for thread, column, factor in ((MAIN, 0, 1.0), (AUTOGRAD, 1, self.backward)):
            for place in range(self.layers):
                *operators, share = LAYER[place % 4]
                yield thread, str(operators[column]), self.kernels[place % 4], factor * share * self.kernel_us

    def train(self, optimiser: bool = True) -> None:
        """The work of a step: both passes and a fused optimiser."""
        for thread, operator, kernel, us in self.passes():
            self.thread = thread
            self.operator(operator, kernel, us)
        self.thread = MAIN
        if optimiser:
            with self.within("Optimizer.step#AdamW.step"):
                self.operator("aten::_fused_adamw_", ADAM, self.kernel_us)

    def wall_us(self) -> float:
        """From the begin of the first work on a GPU to the end of the last."""
        return max(self.free.values()) - min(begins[0] for begins in self.begins.values())

    def save(self, path: Path) -> None:
        """Writes the recording, stamped as SIMULATED, as .json.gz: the same bytes for the same seed."""
        device = f"SIMULATED {self.gpu[0]}"
        recording = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks},
            "labkit": {"SIMULATED": True, "device": device},
            "deviceProperties": [{"id": 0, "name": device, "computeMajor": self.gpu[1], "computeMinor": 0}],
            "traceEvents": self.events,
        }
        with atomic_write(path) as part:
            part.write_bytes(gzip.compress(json.dumps(recording).encode(), 3, mtime=0))
