"""The names that versions of PyTorch and makers of GPUs give to the same things in a trace.

Sources: Kineto's ActivityType.cpp and output_json.cpp, from PyTorch 1.8.1 on. All of them write times in microseconds:
"displayTimeUnit" only tells a viewer what to show, and "baseTimeNanoseconds" only when the times begin to count.
"""

from __future__ import annotations

import re

# Categories of PyTorch 1.8 to 1.10, and those of other makers' runtimes and drivers, by today's name. Tables speak of
# CUDA calls for all of them, as PyTorch itself does on an AMD GPU.
CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
    "Python": "python_function",
    **dict.fromkeys(
        ["hip_runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime", "glow_runtime"], "cuda_runtime"
    ),
    **dict.fromkeys(["hip_driver", "xpu_driver", "privateuse1_driver"], "cuda_driver"),
}
# Names of kernels that send data to other devices: of NCCL and its relatives for AMD (RCCL), Intel (oneCCL) and Huawei
# (HCCL); of MSCCL++ and NVSHMEM; and of PyTorch's and vLLM's own for GPUs with direct links.
COMMUNICATION = (
    r"(?i)^nccl|nccldev|ncclKernel|ncclSymk|^hccl|^rccl|rcclGenericKernel|^xccl|^oneccl|mscclpp|nvshmem"
    r"|cross_device_reduce|(?:one|two)_?shot_(?:all_?)?reduce|multimem_(?:all|one|two|reduce)"
)
# AMD's older runtimes record copies as kernels of these names.
COPIES = r"^Copy(?:Host|Device)To(?:Host|Device)|^FillBuffer"
LAUNCHES = r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel"
# Ranges that PyTorch itself marks; in its first versions as operators.
PYTORCHS_RANGES = r"enumerate\(DataLoader\)|Optimizer\.(?:step|zero_grad)#|(?:nccl|rccl|gloo|hccl|xccl|mpi|ucc):"
USERS_RANGES = r"## "  # of a user of PyTorch 1.8 to 1.10, when operators and ranges had one category
# What a table may call by its category; an event of any other is no work of the host or GPU that it counts.
OPERATORS, RANGES = "cpu_op", "user_annotation"

# Categories that only devices other than GPUs have, by the device's name.
OTHER_DEVICES = {"MTIA": r"^mtia_", "TPU or another accelerator (PrivateUse1)": r"^privateuse1_|^glow_"}

# Operators whose shapes are kept, if they were recorded; see `labtrace.achieved`.
SHAPED = re.compile(r"^aten::(?:(?:add|b|badd)?mm|\w*conv\w*|\w+_norm(?:_backward)?)$")
