"""Trainings with a known fault, and each of them without it: the cause and the true gain are facts.

All are the same loop, and faults.toml says what is different in each, and what a verdict has to say of it. Here is what
a training can do there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labtrace.errors import check_known
from labtrace.planted import simulation
from labtrace.planted.simulation import FIRST, OTHER_GPU, PAUSE_US, SECOND, Process

PINNED, PAGEABLE = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FILL = "__amd_rocclr_fillBufferAligned"
WEIGHTS = 150  # kernels of an optimiser that has one for each weight


class Training(Process):
    """A process with what may be different before a step: a method each, with one argument.

    Times are those of a step, as in `times`.
    """

    def load_inline(self, times: float) -> None:
        """Loads data without a worker, in operators within the loader's range."""
        with self.within(self.culprit):
            for _ in range(20):
                self.work(times / 20, "aten::div")

    def pinned_copy(self, times: float) -> None:
        """Copies to the GPU beside its kernels."""
        self.launch(PINNED, self.times(times), lane=SECOND)

    def pageable_copy(self, times: float) -> None:
        """Copies to the GPU from pageable memory: the call returns when the last part is on its way."""
        begin, us = max(self.now + 8, self.free[FIRST] + PAUSE_US), self.times(times)
        self.call("cudaMemcpyAsync", 8.0, begin + max(2.0, us - 30))
        self.run(PAGEABLE, begin, us)

    def copy_in_place(self, times: float) -> None:
        """Operators in place on views, each of which copies on the GPU."""
        for _ in range(16):
            with self.within("aten::copy_"):
                self.launch("Memcpy DtoD (Device -> Device)", self.times(times / 16))

    def earlier_copies(self, recorded: bool) -> None:
        """Copies to the host, for sixteen steps' time, whose launches may be before the recording."""
        for _ in range(20):
            self.launch(simulation.TO_HOST, self.times(0.8), recorded=recorded)

    def fill(self, recorded: bool) -> None:
        """A short kernel, whose launch may be before the recording."""
        self.launch(FILL, 5.0, recorded=recorded)

    def stream_waits(self, times: float) -> None:
        """The stream waits for work that was launched before the recording."""
        self.call("cudaStreamWaitEvent", 2.0)
        self.free[FIRST] += self.times(times)

    def free_memory(self, times: float) -> None:
        """Frees memory and allocates it again."""
        self.wait("cudaDeviceSynchronize")
        for name in 8 * ["cudaFree"] + 8 * ["cudaMalloc"]:
            self.call(name, self.times(times / 16))

    def first_calls(self, times: float) -> None:
        """Creates the context, and loads the modules of kernels that do not come again."""
        self.call("cudaFree", self.times(times / 2))
        for number in range(6):
            self.operator("aten::conv2d", f"cudnn::engines::kernel_{number}", 300.0, call_us=self.times(times / 12))

    def first_memory(self, times: float) -> None:
        """Allocates the first memory of the process."""
        for part in (0.6, 0.3, 0.1):
            self.call("cudaMalloc", self.times(part * times))

    def blocking_launch(self, times: float) -> None:
        """A launch, of a kernel that is known, takes so long."""
        self.operator("aten::gelu", self.kernels[2], self.kernel_us, call_us=4 + self.times(times))

    def kernel(self, times: float) -> None:
        """One more kernel."""
        self.operator("custom::op", self.culprit, self.times(times))

    def hundred_kernels(self, times: float) -> None:
        """A hundred calls of a kernel, two of which take so long."""
        for number in range(100):
            with self.within("custom::op"):
                self.launch(self.culprit, self.times(times if number in (31, 77) else 0.003))

    def one_graph(self, times: float) -> None:
        """Both passes as a graph, whose launch may take long."""
        self.graph([(name, us) for *_, name, us in self.passes()], call_us=15 + self.times(times))

    def tiny_graph(self, factor: int) -> None:
        """A graph of tiny kernels, or as much work in fewer kernels, which take so many times as long."""
        names = [f"triton_poi_fused_add_{number % 5}" for number in range(600 // factor)]
        self.graph([(name, factor * self.kernel_us) for name in names], pause_us=1.6)

    def optimise(self, graph: bool) -> None:
        """An optimiser of small kernels, which may be one graph."""
        with self.within("Optimizer.step#Adam.step"):
            for _ in range(0 if graph else WEIGHTS):
                self.now += self.times(2 / WEIGHTS)
                self.operator("aten::addcdiv_", self.kernels[2], self.times(0.2 / WEIGHTS))
            if graph:
                self.graph([(self.kernels[2], self.times(0.2 / WEIGHTS))] * WEIGHTS)

    def products(self, waits: bool) -> None:
        """Matrix products, after each of which the host may wait. It is otherwise faster than the GPU."""
        for _ in range(self.layers):
            self.now += 0.4 * self.size * self.kernel_us
            self.operator("aten::mm", self.kernels[0], self.kernel_us)
            if waits:
                self.wait()

    def products_of(self, bits: int) -> None:
        """Matrix products in 32 bits or, in half the time, in 16, and other operators for up to two thirds as long."""
        for _ in range(self.layers):
            self.operator("aten::mm", self.culprit if bits == 32 else self.kernels[0], self.kernel_us * bits / 32)
            self.operator("aten::gelu", self.kernels[2], self.kernel_us * (self.size - 0.65))

    def loop_in_a_graph(self, times: float) -> None:
        """A graph whose first kernels are recorded. The host waits for the rest, which takes so long."""
        end = self.graph([(f"kernel_{name}", self.kernel_us) for name in "ABC"])
        self.wait(until=end + self.times(times))

    def two_streams(self, mixed: bool) -> None:
        """Kernels on two streams, which may be recorded as those of one."""
        for _ in range(self.layers):
            self.operator("aten::mm", self.kernels[0], self.kernel_us)
            self.operator("aten::add", self.kernels[2], 0.9 * self.kernel_us, lane=SECOND)
            if mixed:  # the kernel was recorded before its operator
                self.events[-2]["tid"] = self.events[-2]["args"]["stream"] = FIRST[1]

    def two_gpus(self, waits: bool) -> None:
        """Half of the layers on another GPU. Each half may wait for the other one."""
        for lane, other in ((FIRST, OTHER_GPU), (OTHER_GPU, FIRST)):
            if waits:
                self.call("cudaStreamWaitEvent", 2.0)
                self.free[lane] = max(self.free[lane], self.free[other])
            for _ in range(self.layers):
                self.operator("aten::mm", self.kernels[0], self.kernel_us, lane=lane)

    def share_gpu(self, us: float) -> None:
        """Another process has the GPU half of the time, so long each time."""
        self.slice_us = us * self.size

    def slow_down(self, factor: float) -> None:
        """From now on all kernels take so many times as long."""
        self.slowness *= factor

    def slow_host(self, factor: float) -> None:
        """From now on the host takes so many times as long for an operator."""
        self.host_us *= factor

    def slow_rank(self, factor: float) -> None:
        """The kernels of one rank take about so many times as long."""
        self.slowness = 1 + (factor - 1) * self.size if self.rank == self.faulty else 1.0

    def slow_loader(self, times: float) -> None:
        """One rank waits so long for its loader, and the others hardly at all."""
        self.work(times if self.rank == self.faulty else 0.02)

    def pause(self, times: float) -> None:
        """The host does something else without an event."""
        self.work(times, "")

    def pause_in_turn(self, times: float) -> None:
        """In each step another rank pauses."""
        self.pause(times if self.rank == self.step % self.ranks else 0.0)

    def scatter(self, share: float) -> None:
        """The kernels of a step take up to this share more or less."""
        self.slowness = 1 + share * self.noise.uniform(-1, 1)

    def send(self, times: float) -> None:
        """Exchanges of gradients take so long."""
        self.sending = times

    def send_early(self, share: float) -> None:
        """Exchanges of gradients run beside this share of the backward pass."""
        self.early = round(share * self.layers)

    def load(self, times: float) -> None:
        """The host waits for the workers of its loader, about so long."""
        self.work(times * self.second, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")

    def log(self, times: float) -> None:
        """The host writes a log, about so long."""
        self.work(times * self.second, "torch/utils/tensorboard/writer.py(1100): flush")


@dataclass(frozen=True)
class Fault:
    """A training with and without a fault, and what a verdict has to say of it: a table of faults.toml.

    Attributes:
        cause: of what kind the fault is: few words, among which a student can choose.
        words: the fault.
        says: a pattern that ignores case. It matches the verdict, its first remedy or its reasons, which are a line
            each, and not those on the neighbour, the same training without the fault.
        never: matches none of them, since it would be untrue.
        gain: whether the gain that the verdict tells has to be the true one. Of work that cannot go it tells the gain
            of halving it, so the neighbour has half of it.
        fault, without: what a process does before a step with and without the fault: methods, and their arguments.
        first, every: the steps in which it does so: the first one, and each so many; 0 for the three of `some`.
        trains: whether both passes and the optimiser follow.
        reads: whether a step ends with `.item()`, as if the loss were logged.
        ranks: how many. The recording is a folder, and of its report the first sentence counts,
        alone: or the verdict on the file of the first rank.
        process, names: arguments of `Process`, and what it draws from.
    """

    cause: str
    words: str
    says: str
    never: str = "(?!)"
    gain: bool = False
    fault: Mapping[str, float] = field(default_factory=dict)
    without: Mapping[str, float] = field(default_factory=dict)
    first: int = 0
    every: int = 1
    trains: bool = True
    reads: bool = False
    ranks: int = 1
    alone: bool = False
    process: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, list] = field(default_factory=dict)

    def simulate(self, seed: str, planted: bool, behind: Behind) -> list[Training]:
        """Each rank's process, after all steps, with the fault or without it, and with the cause that is behind it."""
        names, process = TABLE["names"] | self.names, {**behind.process, **self.process}
        ranks = [Training(seed, rank, self.ranks, names, **process) for rank in range(self.ranks)]
        steps = ranks[0].steps
        chosen = range(self.first, steps, self.every) if self.every else ranks[0].some
        for step in range(steps):
            with ExitStack() as marks:
                for p in ranks:
                    p.step = step
                    marks.enter_context(p.within(f"ProfilerStep#{step}"))
                    for act, argument in behind.acts.items():
                        getattr(p, act)(argument)
                    for act, argument in (self.fault if planted else self.without).items():
                        if step in chosen:
                            getattr(p, act)(argument)
                    if self.trains:
                        p.train(optimiser=self.ranks == 1)
                if self.ranks > 1:
                    exchange(ranks)
                if self.reads or behind.acts:
                    ranks[0].read()
        for p in ranks:
            p.wait("cudaDeviceSynchronize")
        return ranks


def exchange(ranks: list[Training]) -> None:
    """A collective that all ranks leave together. Then the optimiser steps, and the loss is logged."""
    for p in ranks:
        p.call("cudaLaunchKernel")
    ready = [p.begins[FIRST][-p.early] if p.early else p.free[FIRST] + PAUSE_US for p in ranks]
    begins = [max(p.now + simulation.LATENCY_US, one) for p, one in zip(ranks, ready, strict=True)]
    end = max(begins) + ranks[0].times(ranks[0].sending)
    for p, begin in zip(ranks, begins, strict=True):
        p.free[FIRST] = max(p.free[FIRST], p.run(ALL_REDUCE, begin, end - begin, SECOND))
        p.operator("aten::_fused_adamw_", simulation.ADAM, 2 * p.kernel_us)
        p.read()


@dataclass(frozen=True)
class Behind:
    """A second cause, which is as large without the fault, and smaller than it: a table of faults.toml.

    Attributes:
        cause, words: as those of a `Fault`.
        acts: what a process does before each step, as `Fault.fault`. A step then ends with `.item()`.
        process: arguments of `Process`.
    """

    cause: str = ""
    words: str = ""
    acts: Mapping[str, float] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planted:
    """A recording with a fault, and what is true of it.

    Attributes:
        path, neighbour: the recordings with and without the fault, a file or, of several ranks, a folder.
        fault: what is wrong.
        behind: what is wrong in both recordings, if anything.
        true_gain: how many times as long as the neighbour's the recording's wall time is, at least 1. Of start-up it is
            1, since a training has that once, in however many steps.
        says, never: patterns as those of the fault, with the names that were drawn.
    """

    path: Path
    neighbour: Path
    fault: Fault
    behind: Behind
    true_gain: float
    says: str
    never: str


def write(name: str, seed: int, folder: Path | str, behind: str = "") -> Planted:
    """Writes a recording with this fault, and its neighbour without it. Their names do not give the fault away.

    Args:
        name: of `FAULTS`.
        seed: of all sizes and names in it.
        folder: for recording.json.gz and neighbour.json.gz or, of several ranks, for folders of these names.
        behind: of `BEHIND`, a second cause in both recordings, or "" for none.

    Raises:
        LabError: the fault or the second cause is unknown, or a file cannot be written.
    """
    check_known("name", name, FAULTS)
    check_known("behind", behind, BEHIND)
    fault, second, walls, paths = FAULTS[name], BEHIND[behind], [], []
    for called in ("recording", "neighbour"):
        first, *others = fault.simulate(f"{name} {seed}", called == "recording", second)
        walls.append(first.wall_us())
        paths.append(Path(folder) / (called if others and not fault.alone else f"{called}.json.gz"))
        for p in [] if fault.alone else others:
            p.save(paths[-1] / f"rank{p.rank}.json.gz")
        first.save(paths[-1] / "rank0.json.gz" if others and not fault.alone else paths[-1])
    culprit = max(re.findall(r"\w+", first.culprit), key=len, default="")
    culprit = rf"\brank {first.faulty}\b" if fault.ranks > 1 else culprit
    words = {"CULPRIT": culprit, **TABLE["wordings"]}
    says, never = (re.sub("|".join(words), lambda one: words[one[0]], text) for text in (fault.says, fault.never))
    gain = 1.0 if fault.cause == "start-up" else max(1.0, walls[0] / walls[1])
    return Planted(paths[0], paths[1], fault, second, gain, says, never)


TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
FAULTS = {name: Fault(**table) for name, table in TABLE["faults"].items()}
BEHIND = {"": Behind()} | {name: Behind(**table) for name, table in TABLE["behind"].items()}
