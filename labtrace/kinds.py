"""What a kernel does, as its name says: finer than compute, memory and communication."""

from __future__ import annotations

import pandas

from labtrace.rank import named

# Kinds of compute kernels by what their names hold; the first that fits counts.
COMPUTE = {
    "attention": r"(?i)flash|fmha|attention|attn",
    "layout conversions": r"nchwToNhwc|nhwcToNchw|nchwToFolded|foldedNhwc|tensorTransformGeneric|nchwAddPadding",
    "convolutions": r"(?i)conv|cudnn.*gemm|winograd|[dw]grad|fprop|miopen|Sp3Asm|im2col",
    "matrix products": r"(?i)gemm|gemv|cublas|splitK|cutlass|Cijk_|nvjet|::dot_kernel",
    "normalisation": r"(?i)norm|bn_[fb]w|welford",
    "optimiser": r"(?i)multi_tensor|adam|sgd|FusedOptimizer",
    "pointwise and other": "",
}


def fine_kinds(kernels: pandas.DataFrame) -> pandas.Series:
    """For each row of `Rank.kernels` "copies", "communication" or one of `COMPUTE`."""
    unique = pandas.Series(kernels["name"].unique(), dtype=object)
    kinds = pandas.Series("", unique.index, dtype=object)
    for kind, pattern in COMPUTE.items():
        kinds[(kinds == "") & named(unique, pattern)] = kind
    compute = kernels["name"].map(dict(zip(unique, kinds, strict=True)))
    return kernels["kind"].map({"memory": "copies", "communication": "communication"}).fillna(compute)
