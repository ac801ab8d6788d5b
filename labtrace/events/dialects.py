"""The names that versions of PyTorch and makers of GPUs use in a trace, and what a kernel does, as its name says.

Sources: Kineto's ActivityType.cpp and output_json.cpp, from PyTorch 1.8.1 on. All of them write times in microseconds:
"displayTimeUnit" only tells a viewer what to show, and "baseTimeNanoseconds" only when the times begin to count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas

# Categories of PyTorch 1.8 to 1.10, and those of other makers' runtimes and drivers, by today's name. Tables speak of
# CUDA calls for all of them, as PyTorch itself does on an AMD GPU.
CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
    "Python": "python_function",
    "hip_runtime": "cuda_runtime",
    "xpu_runtime": "cuda_runtime",
    "hip_driver": "cuda_driver",
    "xpu_driver": "cuda_driver",
    "xpu_sync": "cuda_driver",  # the waits of the host, as calls of their own
}
# The other categories that Kineto writes, but for those of devices that labtrace does not read.
OTHER_CATEGORIES = (
    "gpu_user_annotation external_correlation cpu_instant_event python_function overhead cuda_sync cuda_event "
    "collective_comm ac2g fwdbwd"
).split()
# Names of kernels that send data to other devices: of NCCL and its relatives for AMD (RCCL), Intel (oneCCL) and Huawei
# (HCCL); of MSCCL++, NVSHMEM, Transformer Engine (userbuffers) and DeepSeek's experts (DeepEP); and of PyTorch's and
# inference engines' own for GPUs with direct links.
COMMUNICATION = (
    r"(?i)^nccl|nccldev|ncclKernel|ncclSymk|^hccl|^rccl|rcclGenericKernel|^xccl|^oneccl|mscclpp|nvshmem|userbuffers"
    r"|deep_ep::|dpsk::ep::|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|(?:one|two)_?shot_reduce|multimem_(?:one|two|reduce)"
)
# AMD's older runtimes record copies as kernels of these names.
COPIES = r"^Copy(?:Host|Device)To(?:Host|Device)|^FillBuffer"
# Of NVIDIA, AMD and, from urEnqueueKernelLaunch on, Intel, whose driver appends each launch once more, to a list.
GRAPH_LAUNCHES = r"GraphLaunch|^urEnqueueCommandBuffer"
APPENDED_LAUNCHES = "AppendLaunchKernel"
LAUNCHING_CALLS = rf"(?<!Append)LaunchKernel|LaunchCooperativeKernel|KernelLaunch|{GRAPH_LAUNCHES}"
# Calls in which the host waits for the GPU.
SYNCHRONISING = (
    r"^(?:cuda|hip|cu)(?:(?:Device|Stream|Event|Ctx)Synchronize|Memcpy(?:WithStream|2D|3D)?)$"
    r"|^ze\w+Synchronize$|^ur(?:QueueFinish|EventWait)$"
)
SYNCHRONISE = r"(?:Device|Stream|Ctx)Synchronize$"  # the host does nothing else in these
# Ranges that PyTorch itself marks; in its first versions as operators.
PYTORCHS_RANGES = r"enumerate\(DataLoader\)|Optimizer\.(?:step|zero_grad)#|(?:nccl|rccl|gloo|hccl|xccl|mpi|ucc):"
USERS_RANGES = r"## "  # of a user of PyTorch 1.8 to 1.10, when operators and ranges had one category
# The categories that tables count as work of the host or the GPU. A stream alone does not identify work on the GPU:
# Triton's events on the host have one, and so have waits (cuda_sync) and copies of the host's ranges
# (gpu_user_annotation).
OPERATORS, RANGES = "cpu_op", "user_annotation"
CALLS = ("cuda_runtime", "cuda_driver")  # of the driver: Triton's launches
ON_HOST = (OPERATORS, RANGES, *CALLS)
GPU_WORK = {"kernel": "compute", "gpu_memcpy": "memory", "gpu_memset": "memory"}

# Operators whose shapes are kept, if they were recorded; see `labtrace.tables.achieved`.
SHAPED = re.compile(r"^aten::(?:(?:add|b|badd)?mm|\w*conv\w*|\w+_norm(?:_backward)?)$")

# Kinds of compute kernels by a pattern of their names; the first that fits counts. Finer than `Rank.kernels`. A kernel
# that torch.compile fused is named after all operators in it and beside it, but computes no product and no attention.
UNFUSED = r"(?i)^(?!triton_(?!tem)[a-z]{3}_fused_).*"  # tem: from a template, such as a product's
COMPUTE = {
    "attention": rf"{UNFUSED}(?:flash|fmha|attention|attn|sage_fwd)",
    "softmax": r"(?i)softmax",
    "layout conversions": r"nchwToNhwc|nhwcToNchw|nchwToFolded|foldedNhwc|tensorTransformGeneric|nchwAddPadding",
    "convolutions": (
        rf"{UNFUSED}(?:conv(?!ert)|cudnn_|cudnn.*gemm|winograd|[dw]grad|fprop|miopen|Sp3Asm|\b(?:im|vol)2col)"
    ),
    "matrix products": (
        rf"{UNFUSED}(?:(?<!fb)gemm|gemv|cublas|splitK|cutlass|Cijk_|nvjet|::dot_kernel|matmul|bmm|fused_?moe"
        r"|triton_(?:tem_\w*)?mm)"
    ),
    "normalisation": r"(?i)(?<!lp)norm(?!al(?!i)|TwoOps)|bn_[fb]w|welford",
    "optimiser": r"(?i)multi_tensor|adam|sgd|FusedOptimizer",
    "pointwise and other": "",
}


def copy_name(direction: object, *memories: object) -> str:
    """A copy's name, such as "Memcpy HtoD (Pageable -> Device)", which is in arguments since PyTorch 2.15."""
    kinds = (str(memory).replace("_", " ").title() for memory in memories)
    return f"Memcpy {'HtoH' if direction == 9 else direction} ({' -> '.join(kinds)})"  # CUPTI's number, without a name


def matching(names: pandas.Series, pattern: str) -> pandas.Series:
    """Which of the names contain the pattern. Each name is searched once, however many events have it."""
    unique = pandas.Series(names.unique(), dtype=object)
    return names.isin(unique[unique.str.contains(pattern)])


def first_fitting(names: pandas.Series, patterns: Mapping[str, str]) -> pandas.Series:
    """For each name the key of the first pattern that it contains. Each name is searched once."""
    unique = pandas.Series(names.unique(), dtype=object)
    kinds = pandas.Series("", unique.index, dtype=object)
    for kind, pattern in patterns.items():
        kinds[(kinds == "") & unique.str.contains(pattern)] = kind
    return names.map(dict(zip(unique, kinds, strict=True)))


def fine_kinds(kernels: pandas.DataFrame) -> pandas.Series:
    """For each row of `Rank.kernels` "copies", "communication" or one of `COMPUTE`."""
    coarse = kernels["kind"].map({"memory": "copies", "communication": "communication"})
    return coarse.fillna(first_fitting(kernels["name"], COMPUTE))
