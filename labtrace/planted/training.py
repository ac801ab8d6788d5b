"""What a simulated training can do in a step, with a fault or without it."""

from __future__ import annotations

from labtrace.planted import simulation
from labtrace.planted.simulation import FIRST, OTHER_GPU, PAUSE_US, SECOND, Process

PINNED, PAGEABLE = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
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
