#!/usr/bin/env python3
"""List F: 30 further kinds, 21 faults and 9 trainings without one, whose truth is known by construction.

They were written before any of them was read by labtrace. Beside the commands of planted.py there are

    python planted_further.py truth --seed 0 [scenario ...]       # true gain, and how long the GPU is idle; no labtrace
    python planted_further.py neighbours --seed 0 [scenario ...]  # on a neighbour the sentence must not come
"""
# ruff: noqa: E501

from __future__ import annotations

import contextlib
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), "/work/shared/planted"]
import planted as p  # noqa: E402
from planted import Scenario, each, told  # noqa: E402
from simulation import (  # noqa: E402
    ADAM,
    COPY,
    FIRST,
    HOST,
    LATENCY_US,
    OPERATOR,
    PAUSE_US,
    PYTHON,
    RANGE,
    SECOND,
    TO_GPU,
    Simulation,
)

TO_PINNED = "Memcpy DtoH (Device -> Pinned)"
THIRD, FOURTH = (0, 24), (0, 28)
OTHER_THREAD = 5900
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul>>"
IS_NAN = "void at::native::vectorized_elementwise_kernel<4, at::native::isnan_kernel_cuda>"
NORM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<LpNormFunctor<float, (NormType)2>>"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BARRIER = "ncclDevKernel_AllReduce_Sum_u8_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1"
)
ALGORITHMS = (  # what cuDNN tries for one convolution, with the time of each by that of the best
    (CONVOLUTION, 1.0),
    ("void implicit_convolve_sgemm<__nv_bfloat16, __nv_bfloat16, 1024, 5, 5, 3, 3, 3, 1, true, false, true>", 3.2),
    ("void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>", 1.7),
    ("void fft2d_r2c_32x32<__nv_bfloat16, false, 0u, false>", 4.1),
    ("sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4", 1.4),
    ("cutlass_cudnn_infer::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x64_64x3_nhwc_align8>", 1.2),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, true, 0, 0, int>", 5.0),
)
CHAIN = tuple(  # a tanh-GELU, a scale and a residual written by hand
    (f"aten::{operator}", f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}>")
    for operator, functor in (
        ("pow", "(anonymous namespace)::pow_tensor_scalar_kernel_impl<c10::BFloat16>"),
        ("mul", "AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, binary_internal::MulFunctor<float>>"),
        ("add", "CUDAFunctor_add<c10::BFloat16>"),
        ("mul", "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, binary_internal::MulFunctor<float>>"),
        ("tanh", "tanh_kernel_cuda(at::TensorIteratorBase&)"),
        ("add", "CUDAFunctorOnSelf_add<c10::BFloat16>"),
        ("mul", "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, binary_internal::MulFunctor<float>>"),
        ("div", "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, binary_internal::DivFunctor<float>>"),
        ("bernoulli_", "(anonymous namespace)::bernoulli_scalar_cuda_kernel"),
        ("add", "CUDAFunctor_add<c10::BFloat16>"),
    )
)


@dataclass(frozen=True)
class Further(Scenario):
    """A scenario of so many steps (0: as drawn), with or without marks of them.

    Attributes:
        halved: whether the neighbour has half of the work, and so the same cause.
        healthy: whether nothing is wrong.
        change: what is done to each simulation at the end.
    """

    steps: int = 0
    marked: bool = True
    halved: bool = False
    healthy: bool = False
    change: Callable[[Simulation], None] = lambda sim: None

    def simulate(self, seed: str, planted: bool) -> list[Simulation]:
        ranks = [Simulation(seed, rank, self.ranks, **self.model) for rank in range(self.ranks)]
        for step in range(self.steps or ranks[0].steps):
            with contextlib.ExitStack() as marks:
                for sim in ranks:
                    sim.step = step
                    marks.enter_context(sim.within(f"ProfilerStep#{step}" if self.marked else ""))
                self.play(ranks if self.ranks > 1 else ranks[0], planted)
        for sim in ranks:
            sim.synchronise()
            self.change(sim)
        return ranks


# Parts of a step


def some(sim: Simulation) -> list[int]:
    """Three steps, but none of the first two; the same with and without the fault, and in all ranks."""
    return random.Random(sim.calls).sample(range(2, sim.steps), 3)


def pace(sim: Simulation) -> None:
    """The host needs 95 % of the GPU's time. It is behind in the forward pass, and ahead after the backward pass."""
    sim.backward = 3.0
    sim.host_us = 0.95 * sim.step_us / (2 * sim.layers) - 4


def optimise(sim: Simulation) -> None:
    """A fused optimiser."""
    with sim.within("Optimizer.step#AdamW.step"):
        for _ in range(4):
            sim.operator("aten::_fused_adamw_", ADAM, sim.kernel_us / 4)


def forward(sim: Simulation, share: float = 1.0) -> None:
    """A forward pass."""
    for thread, operator, kernel, us in sim.passes():
        if thread == HOST:
            sim.operator(operator, kernel, share * us)


def in_thread(sim: Simulation, name: str, begin: float, us: float, category: str = PYTHON) -> None:
    """What another thread of the host does meanwhile."""
    sim.thread = OTHER_THREAD
    sim.event(category, name, begin, us)
    sim.thread = HOST


def collective(ranks: Sequence[Simulation], name: str, us: float, lane: tuple[int, int] = SECOND) -> list[float]:
    """It begins after the kernels launched so far, and all ranks leave it together. Returns when, for each."""
    begins = []
    for sim in ranks:
        sim.call("cudaLaunchKernel", 5.0)
        begins.append(max(sim.now + LATENCY_US, sim.free[lane] + PAUSE_US, sim.free[FIRST] + PAUSE_US))
    return [
        sim.on_gpu(name, begin, max(begins) + us - begin, lane=lane) for sim, begin in zip(ranks, begins, strict=True)
    ]


# Faults


def clip_waits(sim: Simulation, planted: bool) -> None:
    """clip_grad_norm_ with error_if_nonfinite: is the norm finite? The host has to wait for it before the optimiser."""
    pace(sim)
    sim.train(optimiser=False)
    with sim.within("torch/nn/utils/clip_grad.py(210): clip_grad_norm_", PYTHON):
        for _ in range(3):
            sim.operator("aten::_foreach_norm", NORM, 0.3 * sim.kernel_us)
        if planted:
            with sim.within("aten::is_nonzero", OPERATOR):
                sim.item()
    optimise(sim)


def validates(sim: Simulation, planted: bool) -> None:
    """Training has workers. In step 5 ten batches are validated, whose loader has none and is slower than the GPU."""
    sim.host(sim.times(0.01), p.NEXT, RANGE)
    sim.train()
    sim.item()
    if sim.step == 5:
        with sim.within("validate"):
            for _ in range(10):
                with sim.within(p.NEXT_INLINE):
                    for _ in range(10):
                        sim.host(sim.times(0.06 if planted else 0.0005), "aten::to")
                forward(sim)
                sim.item()


def saves_in_each_4th(sim: Simulation, planted: bool) -> None:
    """After each 4th step a checkpoint: weight by weight is copied to the host and written to the disk."""
    sim.train()
    sim.item()
    if planted and each(4)(sim.step):
        with sim.within("train.py(140): save_checkpoint", PYTHON), sim.within(p.SAVE, PYTHON):
            for _ in range(12):
                with sim.within("aten::copy_", OPERATOR):
                    sim.copy_to_host(sim.times(0.01))
                sim.host(sim.times(0.4), "<built-in method write_record of PyTorchFileWriter object at 0x7f3c>", PYTHON)


def reads_shards(sim: Simulation, planted: bool) -> None:
    """Samples come from tar files in the main process. In three steps the network's disk is slow."""
    slow = planted and sim.step in some(sim)
    with sim.within("webdataset/tariterators.py(118): tar_file_iterator", PYTHON):
        sim.host(sim.times(4.5 if slow else 0.01), "<method 'read' of '_io.BufferedReader' objects>", PYTHON)
    sim.train()
    sim.item()


def pins_slowly(sim: Simulation, planted: bool) -> None:
    """The workers are fast. The one thread that pins their batches is not, and the training waits for it."""
    begin = sim.now
    sim.host(sim.times(1.3 if planted else 0.01), p.NEXT, RANGE)
    in_thread(sim, "torch/utils/data/_utils/pin_memory.py(52): do_one_step", begin, sim.now - begin)
    in_thread(sim, "aten::_pin_memory", begin + 1, 0.96 * (sim.now - begin), OPERATOR)
    sim.copy_beside(sim.times(0.05))
    sim.train()
    sim.item()


def empties_cache(sim: Simulation, planted: bool) -> None:
    """torch.cuda.empty_cache() in each step; in the next forward pass each fourth operator has to allocate."""
    for place, (thread, operator, kernel, us) in enumerate(sim.passes()):
        sim.thread = thread
        if planted and thread == HOST and place % 4 == 0 and sim.step:
            with sim.within("aten::empty", OPERATOR):
                sim.call("cudaMalloc", sim.times(0.1))
        sim.operator(operator, kernel, us)
    sim.thread = HOST
    optimise(sim)
    if planted:
        with sim.within("torch/cuda/memory.py(218): empty_cache", PYTHON):
            sim.synchronise()
            for _ in range(6):
                sim.call("cudaFree", sim.times(0.08))


def detects_anomalies(sim: Simulation, planted: bool) -> None:
    """torch.autograd.set_detect_anomaly(True): after each operator of the backward pass, are there NaNs?"""
    for thread, operator, kernel, us in sim.passes():
        sim.thread = thread
        sim.operator(operator, kernel, us)
        if thread != HOST:  # the gain is that of the waits and copies alone: the kernel stays
            sim.operator("aten::isnan", IS_NAN, 1.5)
            if planted:
                with sim.within("aten::is_nonzero", OPERATOR):
                    sim.item()
    sim.thread = HOST
    optimise(sim)


def compiles_kernels(sim: Simulation, planted: bool) -> None:
    """In three steps, of new shapes, somebody's Triton kernel is compiled for them."""
    if planted and sim.step in some(sim):
        with sim.within("triton/runtime/jit.py(560): run", PYTHON):
            with sim.within("triton/compiler/compiler.py(226): compile", PYTHON):
                sim.host(sim.times(2.0), "triton/backends/nvidia/compiler.py(310): make_llir", PYTHON)
                sim.host(sim.times(3.0), "triton/backends/nvidia/compiler.py(370): make_cubin", PYTHON)
    sim.train()
    sim.item()


def tries_algorithms(sim: Simulation, planted: bool) -> None:
    """cudnn.benchmark with images of a new size in each step: for each of 6 layers all algorithms are tried."""
    us = 2 * sim.kernel_us
    for _ in range(6):
        with sim.within("aten::cudnn_convolution", OPERATOR):
            for kernel, times in ALGORITHMS if planted else ():
                for _ in range(2):
                    sim.call("cudaMalloc", 40.0)
                    sim.call("cudaEventRecord", 2.0)
                    end = sim.launch(kernel, times * us)
                    sim.call("cudaEventSynchronize", 3.0, until=end + 3)
                    sim.call("cudaFree", 60.0)
            sim.launch(CONVOLUTION, us)
        sim.operator("aten::relu_", sim.kernels[2], 0.2 * us)
    sim.thread = HOST + 1
    for _ in range(6):
        sim.operator("ConvolutionBackward0", CONVOLUTION.replace("fprop", "dgrad"), us)
        sim.operator("ConvolutionBackward0", CONVOLUTION.replace("fprop", "wgrad"), us)
    sim.thread = HOST
    optimise(sim)


def converts_layout(sim: Simulation, planted: bool) -> None:
    """Images are stored channels first, and cuDNN converts them before and after each convolution."""
    share = 1.0 if planted else 0.5
    for _ in range(sim.layers):
        with sim.within("aten::cudnn_convolution", OPERATOR):
            sim.host(9)
            sim.launch("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)2>", share * 1.3 * sim.kernel_us)  # fmt: skip
            sim.launch(CONVOLUTION, sim.kernel_us)
            sim.launch("void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false, (cudnnKernelDataType_t)0>", share * 0.08 * sim.kernel_us)  # fmt: skip
        sim.operator("aten::relu_", sim.kernels[2], 0.1 * sim.kernel_us)


def sends_masks(sim: Simulation, planted: bool) -> None:
    """Each of 12 layers makes its mask on the host and sends it with .to(device), and so waits for the GPU."""
    host_us = 0.9 * (sim.kernel_us + PAUSE_US) - 4
    for _ in range(12):
        if planted:
            with sim.within("aten::to", OPERATOR), sim.within("aten::_to_copy", OPERATOR):
                with sim.within("aten::copy_", OPERATOR):
                    sim.now += 4
                    end = sim.launch(TO_GPU, 2.0, category=COPY)
                    sim.call("cudaStreamSynchronize", 4.0, until=end + 3)
        else:
            sim.operator("aten::triu", FILL, 2.0)
        for _ in range(6):
            sim.operator("aten::mm", sim.kernels[0], sim.kernel_us, host_us)


def shares_in_some(sim: Simulation, planted: bool) -> None:
    """In steps 4 to 6 another job has the GPU half of the time."""
    sim.time_slice_us = 2000 * sim.size if planted and 4 <= sim.step <= 6 else 0.0
    sim.train()
    sim.item()


def first_evaluates(ranks: Sequence[Simulation], planted: bool) -> None:
    """After each 4th step rank 0 evaluates, for four forward passes. The others wait in their next collective."""
    if planted and each(4)(ranks[0].step):
        with ranks[0].within("evaluate"):
            for _ in range(4):
                forward(ranks[0])
    for sim in ranks:
        sim.train(optimiser=False)
    p.exchange(ranks, ranks[0].times(0.02), beside=5)


def barriers(ranks: Sequence[Simulation], planted: bool) -> None:
    """dist.barrier() in each step, by which the hosts wait for their GPUs. No rank is late."""
    for sim in ranks:
        pace(sim)
        sim.train(optimiser=False)
    for sim, end in zip(ranks, collective(ranks, REDUCE, ranks[0].times(0.01)), strict=True):
        sim.free[FIRST] = max(sim.free[FIRST], end)
        optimise(sim)
    if planted:
        befores = [sim.now for sim in ranks]
        for sim, before, end in zip(ranks, befores, collective(ranks, BARRIER, 12.0), strict=True):
            sim.call("cudaStreamSynchronize", 4.0, until=end + 3)
            sim.event(OPERATOR, "c10d::barrier", before)


def chains(sim: Simulation, planted: bool) -> None:
    """Ten kernels, each of which reads and writes all activations, for what one could do; few products."""
    for _ in range(sim.layers):
        sim.operator("aten::mm", sim.kernels[0], 0.3 * sim.kernel_us)
        for operator, kernel in CHAIN:
            sim.operator(operator, kernel, sim.kernel_us * (0.14 if planted else 0.07))


def many_modules(sim: Simulation, planted: bool) -> None:
    """Modules within modules, with hooks: Python needs longer for an operator of the forward pass than the GPU."""
    usual = sim.host_us
    for place, (thread, operator, kernel, us) in enumerate(sim.passes()):
        sim.thread = thread
        if thread == HOST:
            with sim.within(f"nn.Module: Block_{place // 4}", PYTHON):
                with sim.within("torch/nn/modules/module.py(1762): _call_impl", PYTHON):
                    sim.now += 2.6 * sim.size * sim.kernel_us if planted else 0.0
                    with sim.within(f"model.py({57 + place % 4}): forward", PYTHON):
                        sim.operator(operator, kernel, us, usual)
        else:
            sim.operator(operator, kernel, us, usual)
    sim.thread = HOST
    optimise(sim)
    sim.item()


def offloads(sim: Simulation, planted: bool) -> None:
    """Activations are copied to the host in the forward pass, and back before the backward pass needs them."""
    us = 2.0 * sim.size * sim.kernel_us * (1.0 if planted else 0.05)
    for thread, operator, kernel, kernel_us in sim.passes():
        sim.thread = thread
        if thread == HOST:
            end = sim.operator(operator, kernel, kernel_us)
            sim.free[SECOND] = max(sim.free[SECOND], end)  # the copy waits for its operator
            sim.launch(TO_PINNED, us, category=COPY, lane=SECOND)
        else:
            sim.prefetch(us)
            sim.operator(operator, kernel, kernel_us)
    sim.thread = HOST
    optimise(sim)


def blocks(sim: Simulation, planted: bool) -> None:
    """CUDA_LAUNCH_BLOCKING=1 was left on: each launch returns when its kernel has ended."""
    for thread, operator, kernel, us in sim.passes():
        sim.thread = thread
        with sim.within(operator, OPERATOR):
            sim.now += 0.7 * sim.host_us
            end = sim.launch(kernel, us)
            if planted:
                call = sim.events[-2]  # then comes its kernel
                sim.now = end + 3
                call["dur"] = round(sim.now - call["ts"], 3)
            sim.now += 0.3 * sim.host_us
    sim.thread = HOST


def shares_interpreter(sim: Simulation, planted: bool) -> None:
    """A thread that decodes images holds Python's lock again and again, so the training stops between operators."""
    for place, (thread, operator, kernel, us) in enumerate(sim.passes()):
        if planted and place % 5 == 4:
            begin = sim.now
            sim.now += sim.times(0.14)
            in_thread(sim, "lib/prefetch.py(61): decode_images", begin, sim.now - begin - 2)
        sim.thread = thread
        sim.operator(operator, kernel, us)
        sim.thread = HOST
    optimise(sim)
    sim.item()


def doubles(sim: Simulation, planted: bool) -> None:
    """Products in 64 bits, as numpy's arrays are; without the fault, in half of the time."""
    for _ in range(sim.layers):
        sim.operator("aten::mm", sim.name, sim.kernel_us * (1.0 if planted else 0.5))
        sim.operator("aten::add", sim.kernels[2], 0.05 * sim.kernel_us)


def network_hiccups(ranks: Sequence[Simulation], planted: bool) -> None:
    """In three steps the network is congested: the exchange takes 3 steps' time. No rank is late."""
    for sim in ranks:
        sim.train(optimiser=False)
    slow = planted and ranks[0].step in some(ranks[0])
    p.exchange(ranks, ranks[0].times(3.0 if slow else 0.03))


# Nothing is wrong


def slow_batch(sim: Simulation, planted: bool) -> None:
    """In step 6 the loader takes 3 steps' time, but then the host is further ahead than that."""
    sim.host(sim.times(3.0 if planted and sim.step == 6 else 0.01), p.NEXT, RANGE)
    sim.train()


def saves_beside(sim: Simulation, planted: bool) -> None:
    """In each 4th step weights are copied to pinned memory beside the kernels, and a thread writes them."""
    if planted and each(4)(sim.step):
        begin = sim.now
        for _ in range(8):
            sim.launch(TO_PINNED, sim.times(0.06), category=COPY, lane=SECOND)
        in_thread(sim, "torch/distributed/checkpoint/state_dict_saver.py(170): save", begin + 50, sim.times(2.5))
        in_thread(sim, p.SAVE, begin + 60, sim.times(2.4))
    sim.train()
    sim.item()


def last_batch(sim: Simulation, planted: bool) -> None:
    """Each 5th step is the last of an epoch, and its batch has a fifth of the images."""
    sim.slowness = 0.2 if planted and each(5)(sim.step) else 1.0
    sim.train()
    sim.item()
    sim.slowness = 1.0


def branches(sim: Simulation, planted: bool) -> None:
    """Four branches of a model, each in a stream of its own. They run at the same time, and are added at the end."""
    lanes = (FIRST, SECOND, THIRD, FOURTH) if planted else (FIRST,)
    start = max([sim.now, *sim.free.values()])
    for lane in lanes:
        sim.call("cudaStreamWaitEvent", 2.0)
        sim.free[lane] = max(sim.free[lane], start)
    for _ in range(sim.layers):
        for number, lane in enumerate(lanes):
            sim.operator("aten::mm", sim.kernels[0], sim.kernel_us * (1 + 0.05 * number), lane=lane)
    sim.call("cudaStreamWaitEvent", 2.0)
    sim.free[FIRST] = max(sim.free.values())
    sim.operator("aten::add", sim.kernels[2], 0.3 * sim.kernel_us)


def usual_step(sim: Simulation, planted: bool) -> None:
    """A usual step."""
    sim.train()
    sim.item()


def all_that_kineto_writes(sim: Simulation) -> None:
    """Names of processes, arrows, marks of steps on the GPU's lane, waits as the GPU saw them, and the profiler's own."""
    first = min(one["ts"] for one in sim.events)
    last = max(one["ts"] + one["dur"] for one in sim.events)
    calls = {one["args"]["correlation"]: one for one in sim.events if one["cat"] == "cuda_runtime"}
    works = [one for one in sim.events if one["cat"] in ("kernel", COPY)]
    more = []
    for pid, name, labels in ((HOST, "python", "CPU"), (0, "python", "GPU 0"), ("Spans", "Spans", "")):
        more.append(
            {
                "name": "process_name",
                "ph": "M",
                "cat": "__metadata",
                "ts": first,
                "pid": pid,
                "tid": 0,
                "args": {"name": name},
            }
        )
        more.append(
            {
                "name": "process_labels",
                "ph": "M",
                "cat": "__metadata",
                "ts": first,
                "pid": pid,
                "tid": 0,
                "args": {"labels": labels},
            }
        )
    more.append(
        {
            "name": "thread_name",
            "ph": "M",
            "cat": "__metadata",
            "ts": first,
            "pid": 0,
            "tid": 7,
            "args": {"name": "stream 7 "},
        }
    )
    for work in works:
        call, number = calls[work["args"]["correlation"]], work["args"]["correlation"]
        work["args"]["External id"] = number
        arrow = {"id": number, "cat": "ac2g", "name": "ac2g"}
        more.append({"ph": "s", "pid": call["pid"], "tid": call["tid"], "ts": call["ts"], **arrow})
        more.append({"ph": "f", "pid": work["pid"], "tid": work["tid"], "ts": work["ts"], "bp": "e", **arrow})
    for mark in [one for one in sim.events if one["cat"] == RANGE]:
        ends = [mark["ts"], mark["ts"] + mark["dur"]]
        own = [w for w in works if ends[0] <= calls[w["args"]["correlation"]]["ts"] < ends[1]]
        begin, end = min(w["ts"] for w in own), max(w["ts"] + w["dur"] for w in own)
        shown = {"ph": "X", "cat": "gpu_user_annotation", "name": mark["name"], "pid": 0, "tid": 7, "ts": begin}
        more.append(shown | {"dur": round(end - begin, 3), "args": {}})
    for call in [one for one in sim.events if "Synchronize" in one["name"]]:
        shown = {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "args": {"stream": 7}}
        more.append(shown | {"ts": call["ts"], "dur": call["dur"]})
    whole = {"ph": "X", "ts": first, "dur": round(last - first, 3)}
    more.append(whole | {"cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "args": {"Op count": 0}})  # fmt: skip
    more.append({"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": first + 400, "dur": 900.0, "args": {}})  # fmt: skip
    more.append({"ph": "i", "cat": "", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": first})  # fmt: skip
    more.append({"ph": "i", "cat": "", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": last})
    sim.events.extend(more)


def infers(sim: Simulation, planted: bool) -> None:
    """An evaluation alone: forward passes, and after each fourth a metric is read."""
    sim.copy_beside(sim.times(0.02))
    forward(sim)
    sim.operator("aten::argmax", "void at::native::reduce_kernel<512, 1, ArgMaxOps<float>>", 30)
    if planted and each(4)(sim.step):
        sim.item()


def prefetches_weights(ranks: Sequence[Simulation], planted: bool) -> None:
    """FSDP as it should be: the weights of a layer are gathered, and its gradients scattered, beside other kernels."""
    ready = collective(ranks, GATHER, 40.0 * ranks[0].size)
    for place in range(2 * ranks[0].layers):
        nexts = collective(ranks, GATHER, 0.6 * ranks[0].kernel_us if planted else 20.0)
        for sim, end in zip(ranks, ready, strict=True):
            sim.free[FIRST] = max(sim.free[FIRST], end)
            sim.operator("aten::mm", sim.kernels[0], sim.kernel_us)
        if place > ranks[0].layers:
            collective(ranks, SCATTER, 0.6 * ranks[0].kernel_us if planted else 20.0, THIRD)
        ready = nexts
    for sim in ranks:
        sim.free[FIRST] = max(sim.free.values())
        optimise(sim)


def trains_gan(sim: Simulation, planted: bool) -> None:
    """Two generators, then two discriminators, an optimiser for each pair, and a pool of images on the host."""
    for part, share in (("generators", 1.0), ("discriminators", 0.4)):
        for _ in range(2):
            for _place in range(sim.layers // 2):
                sim.operator("aten::cudnn_convolution", CONVOLUTION, share * sim.kernel_us)
                sim.operator("aten::instance_norm", sim.kernels[3], 0.3 * share * sim.kernel_us)
        sim.thread = HOST + 1
        for _ in range(sim.layers):
            for kind in ("dgrad", "wgrad"):
                sim.operator("ConvolutionBackward0", CONVOLUTION.replace("fprop", kind), share * sim.kernel_us)
        sim.thread = HOST
        with sim.within("Optimizer.step#Adam.step"):
            sim.operator("aten::_fused_adam_", ADAM, 0.3 * sim.kernel_us)
        if planted and part == "generators":
            sim.host(sim.times(0.1), "util/image_pool.py(23): query", PYTHON)
    sim.item()


def one_kernel(sim: Simulation, planted: bool) -> None:
    """Five calls of one huge kernel, and nothing else."""
    for _ in range(5):
        sim.operator("custom::megakernel", "persistent_megakernel(Globals const*)", 60 * sim.kernel_us)


# What is true of them

HEALTHY = f"{p.COMPUTE}|" + told(
    r"nothing (?:is )?wrong|no fault|healthy|(?:compute|GPU)[- ]bound|bound(?:ed)? by (?:the GPU|its GPU|kernels)|well used"
)
NO_FAULT = f"{p.NOT_COMPUTE}|" + told(
    r"throttl|clock rate|re-?compil|compilation|\bsav(?:es?|ing) (?:costs?|takes?)|not recorded"
)
HOSTS_WAIT, NOT_READ = told(p.WAITS), told(r"data loading|start-?up")
FIRST_TWO = r"\A.*(?:\n.*)?"  # the verdict or its first remedy

# fmt: off
LIST_F = {
    "clip_waits": Further("clipping gradients asks whether their norm is finite, and the host waits",
        clip_waits, told(rf"{p.WAITS}|clip|is_nonzero"), NOT_READ, p.LAUNCHES, gain=True,
        model={"layers": 100, "kernel_us": 60}),
    "validates": Further("a validation in the middle whose loader has no workers",
        validates, p.LOADING, p.FILLED, f"{told('validat')}|{p.OTHER_WORK}", gain=True),
    "saves_in_each_4th": Further("a checkpoint in each 4th step",
        saves_in_each_4th, told("sav(?:e|ing)|checkpoint|serializ|write_record"), f"{p.FILLED}|{NOT_READ}",
        f"{p.OTHER_WORK}|{HOSTS_WAIT}|{p.COPIES}", gain=True),
    "reads_shards": Further("a tar file is read from a disk that is slow in three steps",
        reads_shards, told(r"\bread|tar_file|webdataset|tariterators|load|disk"), f"{p.FILLED}|start-?up", p.OTHER_WORK,
        gain=True),
    "pins_slowly": Further("the loader waits for the one thread that pins its batches",
        pins_slowly, told("load(?:ing|er)|data|pin"), p.FILLED, gain=True),
    "empties_cache": Further("empty_cache() in each step, and memory is allocated anew in the next",
        empties_cache, told("alloc|free memory|frees|cudaFree|empty_cache"), NOT_READ, gain=True),
    "detects_anomalies": Further("anomaly detection waits after each operator of the backward pass",
        detects_anomalies, told(rf"{p.WAITS}|anomal|isnan|is_nonzero"), NOT_READ, p.LAUNCHES, gain=True,
        model={"layers": 60, "kernel_us": 60}),
    "compiles_kernels": Further("a Triton kernel is compiled in three steps",
        compiles_kernels, told(r"triton|compil|\bjit\b|make_cubin"), f"{p.FILLED}|start-?up", p.OTHER_WORK, gain=True),
    "tries_algorithms": Further("cudnn.benchmark tries all algorithms in each step",
        tries_algorithms, r"trial|tried|tries\b|search|autotun|benchmark\b.{,60}(?:each|every|again|new|False|off\b|shape)",
        r"benchmark ?= ?True|(?:turn|switch) on [^.]{,30}benchmark", told("conv|alloc|cudaFree") + "|" + HOSTS_WAIT),
    "converts_layout": Further("cuDNN converts the layout around each convolution",
        converts_layout, r"nchwToNhwc|nhwcToNchw|\blayout|channels.?last", told("launching"), p.BUSY, gain=True, halved=True),
    "sends_masks": Further("each of 12 layers sends a mask with .to(device)",
        sends_masks, told(rf"{p.WAITS}|cop(?:y|ies)|pinned|aten::to\b"), NOT_READ, p.LAUNCHES, gain=True,
        model={"kernel_us": 40}),
    "shares_in_some": Further("another job has the GPU half of the time in steps 4 to 6",
        shares_in_some, rf"{p.SHARED}|{p.SLOWS}|" + told(r"some steps|in (?:3|three) of|steps? 4"),
        told("launching|load"), told("pause|idle between")),
    "first_evaluates": Further("rank 0 evaluates, and the others wait for it",
        first_evaluates, told(r"\brank 0\b"), r"\brank [1-9]\d* (?:is|was|seems) (?:the|a) straggler|straggler(?: is|:) rank [1-9]"
        r"|waited (?:mostly )?for rank [1-9]", ranks=4),
    "barriers": Further("a barrier in each step; rank 0's file alone",
        barriers, told(rf"barrier|{p.WAITS}"), f"{NOT_READ}|bucket", p.LAUNCHES, gain=True, ranks=4, alone=True,
        model={"layers": 100, "kernel_us": 60}),
    "chains": Further("chains of pointwise kernels take most of the time",
        chains, FIRST_TWO + r"(?:point-?wise|element-?wise|memory.?bound|bandwidth|\bfus(?:e|es|ed|ing|ion)\b)",
        told("launching|data loading"), p.BUSY, gain=True, halved=True, model={"kernel_us": 600}),
    "many_modules": Further("Python between the modules is slower than the GPU",
        many_modules, told("launch|Python|overhead|_call_impl|hooks?|module"), told(r"data loading|start-?up"),
        f"{p.OTHER_WORK}|{HOSTS_WAIT}", gain=True, model={"kernel_us": 100}),
    "offloads": Further("activations are copied to the host and back",
        offloads, told("cop(?:y|ies)|offload|Memcpy|transfer"), rf"{p.FILLED}|pinned memory", gain=True),
    "blocks": Further("CUDA_LAUNCH_BLOCKING=1",
        blocks, told(r"BLOCKING|\bblock(?:s|ed|ing)?\b|synchronous|launch(?:es|ing)?\b[^.:]{,40}\bwaits? (?:for|until)"), NOT_READ,
        f"{p.LAUNCHES}|{HOSTS_WAIT}", gain=True, model={"layers": 60, "kernel_us": 60}),
    "shares_interpreter": Further("a thread that decodes holds Python's lock",
        shares_interpreter, told(r"pause|no event|without an?y? event|Python|other (?:host )?work|\bGIL\b|thread|decode|prefetch"),
        f"{p.FILLED}|{NOT_READ}", f"{p.LAUNCHES}|{HOSTS_WAIT}", gain=True),
    "doubles": Further("products in 64 bits",
        doubles, r"64.?bit|\bdouble|fp64|float64", r"(?:allow|set|enable|turn on)[^.]{,40}TF32|start-?up", p.PRODUCTS,
        gain=True, halved=True, model={"kernel_us": 600, "names": {
            "d884gemm": "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_128x64_16x3_nt_align1>(Params)",
            "dgemm": "ampere_dgemm_128x64_tn"}}),
    "network_hiccups": Further("the network is congested in three steps",
        network_hiccups, r"communicat|all-?reduce|exchang|network|collective|send", p.STRAGGLER, "bucket", ranks=4),
    "slow_batch": Further("none; one batch is slow while the host is far ahead",
        slow_batch, HEALTHY, NO_FAULT, healthy=True),
    "saves_beside": Further("none; weights are copied and saved beside the kernels",
        saves_beside, HEALTHY, f"{NO_FAULT}|" + told("serialization|checkpoint|saving"), healthy=True),
    "last_batch": Further("none; each 5th batch is small",
        last_batch, HEALTHY, NO_FAULT, healthy=True),
    "branches": Further("none; four streams at the same time",
        branches, HEALTHY, f"{NO_FAULT}|{p.ONE_LANE}", healthy=True),
    "all_that_kineto_writes": Further("none; all sorts of events that PyTorch 2 writes",
        usual_step, HEALTHY, f"{NO_FAULT}|{p.UNRECORDED}", healthy=True, change=all_that_kineto_writes),
    "infers": Further("none; an evaluation, without marks of steps",
        infers, HEALTHY, NO_FAULT, healthy=True, marked=False),
    "prefetches_weights": Further("none; FSDP beside the kernels, four ranks",
        prefetches_weights, f"{p.EVEN}|{HEALTHY}", f"{p.STRAGGLER}|{NO_FAULT}", healthy=True, ranks=4),
    "trains_gan": Further("none; two optimisers a step and a pool of images",
        trains_gan, HEALTHY, f"{NO_FAULT}|" + told("image_pool"), healthy=True),
    "one_kernel": Further("none; one step without a mark, of one huge kernel",
        one_kernel, HEALTHY, NO_FAULT, healthy=True, steps=1, marked=False),
}
# fmt: on


# Two more commands, and what labtrace says of a folder at 0.3.0 (planted.py knows an earlier name of it)


def verdicts(path: Path) -> list[tuple[str, str, str, float]]:
    """Of a folder, the first sentence of the report; of a file, as in planted.py."""
    if not path.is_dir():
        return of_file(path)
    import labtrace
    from labtrace.show.report import report_text

    lines = report_text({path.name: labtrace.Trace(path)}).splitlines()
    return [(next(line for line in lines if line.endswith(".")), "", "", float("nan"))]


of_file, p.verdicts = p.verdicts, verdicts


def idle_share(sim: Simulation) -> float:
    """The share of the wall time in which no lane of the GPU has work."""
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in sim.events if e.get("cat") in ("kernel", COPY))
    busy, reach = 0.0, spans[0][0]
    for begin, end in spans:
        busy += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return 1 - busy / (reach - spans[0][0])


def truth(names: Sequence[str], seed: int) -> None:
    """Prints the true gain, and how long the GPU is idle with and without the fault."""
    print(f"{'scenario':25} {'steps':>5} {'gain':>6} {'idle':>6} {'without':>7}")
    for name in names:
        without, planted = (LIST_F[name].simulate(f"{name} {seed}", fault)[0] for fault in (False, True))
        gain, idle = planted.wall_us() / without.wall_us(), idle_share(planted)
        print(f"{name:25} {planted.step + 1:5} {gain:6.2f} {idle:6.1%} {idle_share(without):7.1%}")


def neighbours(names: Sequence[str], seed: int) -> None:
    """Prints what labtrace says of neighbours. The sentence of the fault must not come; work that is halved still may."""
    for name in names:
        one = LIST_F[name]
        if one.healthy or one.halved:
            continue
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            p.write(name, one, seed, Path(folder))
            place = f"{name}_without" + ("" if one.ranks > 1 else ".json.gz")
            for sentence, *_ in p.verdicts(Path(folder) / place / ("rank0.json.gz" if one.alone else "")):
                comes = re.search(one.says, sentence, re.IGNORECASE)
                print(f"{name:25} {'comes' if comes else 'right':5} {sentence}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] in (["truth"], ["neighbours"]):
        command, *asked = sys.argv[1:]
        drawn = int(asked.pop(asked.index("--seed") + 1)) if "--seed" in asked else 0
        {"truth": truth, "neighbours": neighbours}[command]([a for a in asked if a != "--seed"] or [*LIST_F], drawn)
    else:
        p.main(LIST_F)
