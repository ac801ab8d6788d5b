"""The causes of a training's time, in one table: what a sentence calls each of them, what to try, what can go of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from labtrace.events import host
from labtrace.findings.program import EIGHT, ON_GPU, PINNED, SIXTY_FOUR, Program

RANKS, PAUSES, COPIES = "waiting for other ranks", "pauses between kernels", "copies"
COMMUNICATION = "communication"
HALF = 0.5  # of the time of kernels: a change cannot make them go, but take half as long, perhaps


class Cause(NamedTuple):
    """One cause.

    Attributes:
        words: on the host what the GPU waits for, on the GPU what is busy.
        advice: what to try: the first part, up to the semicolon, is the subject of a sentence.
        can_go: the share of its time that a change can take away, 1 or `HALF`.
    """

    words: str
    advice: str | Callable[[Program], str]
    can_go: float = 1.0


def launches(program: Program) -> str:
    """What to try against launches that take longer than their kernels."""
    if program.breaks:
        return 'no graph breaks between compiled regions; TORCH_LOGS=graph_breaks names them; mode="reduce-overhead"'
    if program.is_compiled:
        return 'torch.compile\'s mode="reduce-overhead" or a larger batch; it replays CUDA graphs'
    return (
        f"{_either(['torch.compile', *(['a CUDA graph'] * program.has_graphs), 'a larger batch'])}; fewer, larger "
        + ('launches; labkit: "graph", "batched"')
    )


def waits(program: Program) -> str:
    """What to try against a host that waits for the GPU."""
    if program.launches_block:
        return "no CUDA_LAUNCH_BLOCKING in the environment; no debugger or sanitizer that waits for each kernel"
    if program.decodes:  # the next token depends on this one
        return "launching the next step before this one's result is read; asynchronous scheduling, no .item() between"
    return "a loop without .item(), print or copies that the host waits for; pinned memory and non_blocking copies"


def copies(program: Program) -> str:
    """What to try against copies."""
    if program.mostly(COPIES, ON_GPU):
        return (
            "no in-place operations on views; for them autograd copies whole tensors, as clone() and contiguous() do; "
            'labkit: "out_of_place"'
        )
    if program.mostly(COPIES, PINNED):
        return "fewer bytes to copy or data that stay on the GPU; these copies are pinned: uint8 pictures, for instance"
    return "pinned memory and non_blocking copies; data that stay on the GPU, no .item() in the loop"


def communication(program: Program) -> str:
    """What to try against time for sending."""
    if program.mostly(COMMUNICATION, r"(?i)all_?gather|reduce_?scatter"):
        return "gathering weights before they are needed; FSDP's prefetch, fewer shards, a faster network"
    return "larger buckets or 16-bit gradients; a faster network, fewer exchanges"


def attention(program: Program) -> str:
    """What to try against attention's kernels."""
    bits = program.fewer_bits("attention")[:1]
    return f"{_either([*bits, 'shorter sequences'])}; a sliding window, FlexAttention, which skips what is masked"


def convolutions(program: Program) -> str:
    """What to try against convolutions."""
    options = _either([*program.fewer_bits("convolutions"), *_layout(program)] or ["lighter layers"])
    half = "fp16" if program.before_ampere else "bf16"
    return f'{options}; {_why(program)}cudnn.benchmark, lighter layers; labkit: "{half}", "nhwc"'


def conversions(program: Program) -> str:
    """What to try against conversions between layouts."""
    options = _either(_layout(program) or ["torch.compile"])
    return f'{options}; {_why(program)}pictures and weights in one layout; labkit: "nhwc"'


def products(program: Program) -> str:
    """What to try against matrix products."""
    if program.reads_weights:
        return "a larger batch or weights of 8 or 4 bits; these products read much and compute little"
    if program.mostly("matrix products", EIGHT):
        return "fewer and smaller products; sizes that are multiples of 16"
    if program.mostly("matrix products", SIXTY_FOUR):
        return "32 bits in place of float64; NumPy's arrays have 64, and torch.from_numpy keeps them"
    bits = program.fewer_bits("matrix products") or ["8-bit numbers", "fewer and smaller products"]
    return f"{_either(bits)}; sizes that are multiples of 8 or 16"


def norms(program: Program) -> str:
    """What to try against normalisation."""
    return f"{_either(['torch.compile', *_layout(program)])}; {_why(program)}it is fused with its neighbours"


def pointwise(program: Program) -> str:
    """What to try against kernels that compute little for each number they read."""
    bits = program.fewer_bits("pointwise and other")[:1]
    compiled = "fewer operators" if program.is_compiled else "torch.compile"
    return f"{_either([compiled, *bits])}; kernels are fused; work in place"


def _layout(program: Program) -> list[str]:
    return [] if program.channels_first or program.mostly("convolutions", "(?i)nhwc") else ["channels_last"]


def _why(program: Program) -> str:
    first = "channels_last copies at instance norm and reflection padding (slower where it was measured, uncompiled); "
    return first if program.channels_first else ""


def _either(options: Sequence[str]) -> str:
    """ "a, b or c"."""
    return f"{', '.join(options[:-1])} or {options[-1]}" if len(options) > 1 else options[0]


ON_HOST = {
    host.WAITS: Cause("the host, which waits for it in turn", waits),
    host.DATA: Cause(
        "the loading of data",
        "more loader workers and pinned memory; prefetching, pictures decoded once; labkit: workers=",
    ),
    host.LAUNCHES: Cause("the launching of kernels", launches),
    host.GRAPHS: Cause(
        "the launching of CUDA graphs",
        "fewer and larger graphs and kernels, or a newer driver; torch.compile fuses kernels before capture, one graph "
        "can hold the whole step, and CUDA 12.6 launches graphs faster",
    ),
    host.COMPILING: Cause(
        "recompilation",
        "compiling once; TORCH_LOGS=recompiles tells why, equal shapes or torch._dynamo.mark_dynamic help",
    ),
    host.BLOCKED: Cause(
        "launches that block",
        "launches that do not block; another thread or program may hold the driver, or modules come late: "
        "CUDA_MODULE_LOADING=EAGER, all shapes in the warm-up",
    ),
    host.MEMORY: Cause(
        "calls that allocate and free memory",
        "an allocator that keeps its memory; no empty_cache(), the same shapes, pinned buffers made once, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    host.OTHER: Cause(
        "other work of the host",
        "moving this work into another process, or out of the loop; Trace.gaps() has names, and more if the profiler "
        "records with_stack=True; gc.freeze() if it is Python's garbage collection",
    ),
    host.START_UP: Cause(
        "the start-up of first calls",
        "nothing in training; leave the first steps out of the recording (the profiler's wait and warmup)",
    ),
}
ON_THE_GPU = {
    RANKS: Cause(
        "waits for other ranks",
        "the same work for each rank; equal batches and pictures, find the slow rank's cause",
    ),
    COMMUNICATION: Cause("communication", communication),
    COPIES: Cause("copies", copies),
    PAUSES: Cause(
        "pauses between kernels",
        "fewer and larger kernels; torch.compile fuses them, larger batches; each kernel of a graph has its pause",
        HALF,
    ),
    "attention": Cause("attention", attention, HALF),
    "softmax": Cause(
        "softmax",
        "scaled_dot_product_attention; one kernel that never writes the scores; of a loss, cross_entropy",
        HALF,
    ),
    "layout conversions": Cause("layout conversions", conversions, HALF),
    "convolutions": Cause("convolutions", convolutions, HALF),
    "matrix products": Cause("matrix products", products, HALF),
    "normalisation": Cause("normalisation", norms, HALF),
    "optimiser": Cause("the optimiser", 'one kernel for all weights; fused=True; labkit: "fused_adam"', HALF),
    "pointwise and other": Cause("pointwise and other kernels", pointwise, HALF),
}
CAUSES = ON_HOST | ON_THE_GPU


def advice(program: Program) -> dict[str, str]:
    """What to try, by cause."""
    return {name: cause.advice(program) if callable(cause.advice) else cause.advice for name, cause in CAUSES.items()}
