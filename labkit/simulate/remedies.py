"""How much a recorded step could gain at most if one cause of its time were gone: the trace, played again without it.

Shares of idle or busy time do not answer this: what one cause hides another one is waiting behind. So each cause is
taken out by itself, the rest stays as recorded, and the wall times are compared. Causes that overlap are therefore not
counted twice, and the gains of two of them cannot be added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas

from labkit.simulate.launch_queue import Launch
from labkit.simulate.trace_file import Replay
from labkit.simulate.what_if import check, in_order, read_launches
from labkit.traces.rank import Rank, named

# Kinds of compute kernels by what their names hold; the first that fits counts.
COMPUTE = {
    "attention": r"(?i)flash|fmha|attention|attn",
    "convolutions": r"(?i)conv|cudnn.*gemm|winograd|[dw]grad|fprop|miopen|Sp3Asm|im2col",
    "matrix products": r"(?i)gemm|gemv|cublas|splitK|cutlass|Cijk_|nvjet|::dot_kernel",
    "normalisation": r"(?i)norm|bn_[fb]w|welford",
    "optimiser": r"(?i)multi_tensor|adam|sgd|FusedOptimizer",
    "pointwise and other": "",
}
TRY = {
    "data loading": "more loader workers, pin_memory and prefetching, pictures decoded once; labkit: workers=",
    "launches": 'fewer and larger launches: torch.compile, a CUDA graph, a larger batch; labkit: "graph", "batched"',
    "copies": "pinned memory and non_blocking copies, data that stay on the GPU, no .item() in the loop",
    "communication": "larger buckets, a faster network, 16-bit gradients, fewer exchanges",
    "waiting for other ranks": "the same work for each rank: equal batches and pictures; find the slow rank's cause",
    "attention": "a fused kernel: scaled_dot_product_attention, FlexAttention; 16 bits",
    "convolutions": '16 bits, TF32, channels_last, cudnn.benchmark; labkit: "bf16", "channels_last"; lighter networks',
    "matrix products": "16 bits, TF32, sizes that are multiples of 8 or 16",
    "normalisation": "torch.compile fuses it with its neighbours; channels_last",
    "optimiser": 'one kernel for all weights: fused=True; labkit: "fused_adam"',
    "pointwise and other": "torch.compile fuses them; work in place; 16 bits",
}


def remedies(ranks: Mapping[int, Rank]) -> pandas.DataFrame:
    """The table that `labkit.Trace.remedies` explains."""
    waits = _waits(ranks)
    rows = [{"rank": number, **row} for number, rank in ranks.items() for row in _of_rank(rank, waits.get(number))]
    table = pandas.DataFrame(rows, columns=["rank", "cause", "us", "share_of_wall", "times_faster_at_most", "try"])
    return table.sort_values(["rank", "us"], ascending=[True, False], kind="stable", ignore_index=True)


def _of_rank(rank: Rank, waited: np.ndarray | None) -> Iterator[dict]:
    recorded = read_launches(rank)
    check(rank, recorded)
    wall = _wall(recorded)
    for cause, launches in _without(rank, recorded, waited):
        left = _wall(replace(recorded, launches=launches))
        yield {
            "cause": cause,
            "us": wall - left,
            "share_of_wall": (wall - left) / wall,
            "times_faster_at_most": wall / left if left > 0 else np.inf,
            "try": TRY[cause],
        }


def _without(rank: Rank, recorded: Replay, waited: np.ndarray | None) -> Iterator[tuple[str, list[Launch]]]:
    """The launches without each cause that the trace has."""
    launches = recorded.launches
    if any(launch.data_us for launch in launches):
        yield "data loading", [replace(one, host_us=one.host_us - one.data_us, data_us=0.0) for one in launches]
    yield "launches", [replace(one, host_us=one.data_us) for one in launches]
    table = in_order(rank)
    shared = table["name"].map(_kind_of_compute(table["name"]))
    causes = table["kind"].map({"memory": "copies", "communication": "communication"}).fillna(shared)
    for cause in causes.unique():
        yield (
            cause,
            [replace(one, kernel_us=0.0) if own == cause else one for one, own in zip(launches, causes, strict=True)],
        )
    if waited is not None:
        left = table["duration"].to_numpy(copy=True)
        left[np.flatnonzero(table["kind"] == "communication")] -= waited
        yield (
            "waiting for other ranks",
            [replace(one, kernel_us=float(us)) for one, us in zip(launches, left, strict=True)],
        )


def _lasting(launches: Sequence[Launch], us: pandas.Series) -> list[Launch]:
    return [replace(one, kernel_us=float(lasts)) for one, lasts in zip(launches, us, strict=True)]


def _kind_of_compute(names: pandas.Series) -> dict[str, str]:
    unique = pandas.Series(names.unique(), dtype=object)
    kinds = pandas.Series("", unique.index, dtype=object)
    for kind, pattern in COMPUTE.items():
        kinds[(kinds == "") & named(unique, pattern)] = kind
    return dict(zip(unique, kinds, strict=True))


def _waits(ranks: Mapping[int, Rank]) -> dict[int, np.ndarray]:
    """How long each rank waited in each of its collectives, in the order of their launches; {} if that is unknown.

    All ranks leave a collective together, so the one that was in it for the shortest time did not wait.
    """
    durations = []
    for rank in ranks.values():
        table = in_order(rank)
        durations.append(table["duration"][table["kind"] == "communication"].to_numpy())
    if len(ranks) < 2 or len({len(each) for each in durations}) > 1 or not len(durations[0]):
        return {}
    every = np.stack(durations)
    return dict(zip(ranks, every - every.min(axis=0), strict=True))


def _wall(played: Replay) -> float:
    """From the first work on the GPU to the last."""
    timeline = played.timeline
    return float(timeline.kernel_end.max() - timeline.kernel_start.min())
