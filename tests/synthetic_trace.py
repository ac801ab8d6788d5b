"""Small Kineto traces whose every time is known, in microseconds."""

import gzip
import json
from itertools import count

HOST, AUTOGRAD, GPU = 4242, 4243, 0  # a process and thread of the host, another thread, and a GPU


class SyntheticTrace:
    """Collects events; `save` writes them as torch.profiler would. A method that adds some gives back the trace."""

    def __init__(self, rank=0, **meta):
        self.meta = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, **meta}
        self.events = []
        self.correlations = count(1)

    def event(self, category, name, begin, duration, pid=HOST, tid=HOST, **args):
        times = {"ts": begin, "dur": duration}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args})
        return self

    def operator(self, name, begin, duration, tid=HOST, **args):
        return self.event("cpu_op", name, begin, duration, tid=tid, **args)

    def range(self, name, begin, duration):
        """On the host and, as the profiler draws it, on the GPU."""
        self.event("user_annotation", name, begin, duration)
        return self.event("gpu_user_annotation", name, begin, duration, pid=GPU, tid=7, stream=7)

    def kernel(self, begin, duration, correlation=None, name="gemm", stream=7, category="kernel"):
        correlation = next(self.correlations) if correlation is None else correlation
        args = dict(device=0, stream=stream, correlation=correlation)
        return self.event(category, name, begin, duration, GPU, stream, **args)

    def call(self, begin, duration=4, name="cudaLaunchKernel", category="cuda_runtime", tid=HOST):
        """A call of the host; gives its correlation."""
        correlation = next(self.correlations)
        self.event(category, name, begin, duration, tid=tid, correlation=correlation)
        return correlation

    def launch(self, call, begin, duration, call_duration=4, **kernel):
        """A call at `call` and its kernel at `begin`."""
        return self.kernel(begin, duration, self.call(call, call_duration), **kernel)

    def launches(self, number, call, begin, duration, every, gpu_every=None, **kernel):
        """So many launches: the calls one `every` so many us, the kernels as often or one `gpu_every` so many."""
        for place in range(number):
            self.launch(call + place * every, begin + place * (gpu_every or every), duration, **kernel)
        return self

    def copy(self, call, begin, duration, name="Memcpy HtoD (Pageable -> Device)", **kernel):
        correlation = self.call(call, name="cudaMemcpyAsync")
        return self.kernel(begin, duration, correlation, name=name, category="gpu_memcpy", **kernel)

    def save(self, path, separators=None):
        opened = gzip.open(path, "wt") if path.name.endswith(".gz") else open(path, "w")
        with opened as file:
            json.dump({**self.meta, "traceEvents": self.events}, file, separators=separators)
        return path


def on_the_host(*events, **meta):
    """A process without a GPU: the name, begin and duration of operators (aten::mul), ranges and steps."""
    trace = SyntheticTrace(**meta)
    for name, begin, duration in events:
        trace.event("cpu_op" if "::" in name else "user_annotation", name, begin, duration)
    return trace


def steps_on_the_host(*steps, **meta):
    """Steps one after the other: of each how long it takes and, in a list, events as above that begin so late in it."""
    events, begin = [], 0
    for number, (us, inside) in enumerate(steps):
        events += [(f"ProfilerStep#{number}", begin, us), *((name, begin + late, took) for name, late, took in inside)]
        begin += us
    return on_the_host(*events, **meta)


def two_streams():
    """Stream 7 busy 100-200, 210-300 and, copying, 500-540; stream 20 250-350 and 600-700: wall 600, idle 220."""
    trace = SyntheticTrace(labkit={"device": "NVIDIA Imaginary", "torch": "2.11.0"})
    trace.range("ProfilerStep#3", 0, 460)
    trace.range("labkit: generators forward", 10, 390)
    trace.launch(50, 100, 100, name="void gemm<4, float>(int)")  # delay 46
    trace.launch(60, 210, 90, name="relu")  # delay 146; gap 200-210 is kernel_wait
    trace.launch(70, 250, 100, stream=20)  # delay 176
    trace.range("ProfilerStep#4", 460, 150)
    trace.range("labkit: data", 465, 30)
    trace.copy(470, 500, 40)  # gap 350-500 is host_wait until 474
    trace.operator("aten::mul", 480, 110)
    trace.launch(520, 600, 100, call_duration=60, stream=20)  # gap 540-600: launched before, and long: other
    return trace


def one_kernel(rank=0):
    """Stream 7 busy 10-100, in its only step."""
    return SyntheticTrace(rank=rank).range("ProfilerStep#7", 0, 9).launch(1, 10, 90)


def on_a_cpu():
    """No GPU activity: a range, and an operator in it."""
    events = ("ProfilerStep#0", 0, 50), ("labkit: generators forward", 0, 40), ("aten::conv2d", 0, 30)
    return on_the_host(*events, labkit={"device": "a CPU", "torch": "2.15.0"})


def two_ranks():
    """On GPUs: rank 0 is in its two all-reduces for 60 and 100, rank 1 for 10 and 50, so rank 0 waits for rank 1.

    Rank 0: compute 0-100 and 130-150; NCCL 80-140 and 150-250: of 160 it hides 30 and exposes 130, wall 250.
    """
    traces = [SyntheticTrace(rank=rank, labkit={"device": f"GPU {rank}", "torch": "2.15.0"}) for rank in (0, 1)]
    fast, slow = traces
    for trace in traces:
        trace.range("ProfilerStep#0", -10, 270)
    nccl = dict(name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=20)
    fast.launch(-5, 0, 100).launch(1, 80, 60, **nccl).launch(6, 130, 20).launch(11, 150, 100, **nccl)
    slow.launch(-5, 0, 130).launch(1, 130, 10, **nccl).launch(6, 130, 70).launch(11, 200, 50, **nccl)
    return traces
