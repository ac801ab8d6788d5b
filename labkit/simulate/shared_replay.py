"""A data-parallel step, played with its collectives on a stream of their own: SIMULATED.

As NCCL does it, a collective starts when the operators before it have run and the previous collective has ended, and
the main stream goes on meanwhile, up to the first operator that may read the result. Every rank runs the same step at
the same time, so none waits for a slower one. We leave out that collectives share multiprocessors
and memory with the kernels beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as with_changes

from labkit.simulate.collectives import Collective, SharedStep
from labkit.simulate.communication import Network, all_reduce_us
from labkit.simulate.launch_queue import Launch
from labkit.simulate.operator_replay import profiled_stream, replay
from labkit.simulate.trace_file import Replay, Source

NCCL_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
STREAM = profiled_stream(99)  # of the collectives: no step has so many others


def with_collectives(played: Replay, step: SharedStep, us_of: Callable[[Collective], float], host_us: float) -> Replay:
    """The replay of a step's operators with its collectives among them, on a stream of their own.

    Args:
        played: from `replay` of `step.operators`, for any number of steps.
        us_of: microseconds of a collective.
        host_us: microseconds of host time to launch one.
    """
    steps = 1 + max(source.step for source in played.sources)
    pending = [
        (number * len(step.operators) + collective.ready, number, collective)
        for number in range(steps)
        for collective in step.collectives
    ]
    launches: list[Launch] = []
    sources: list[Source] = []
    moved: list[int] = []  # where each of the replay's launches is now
    awaited: list[tuple[int, int]] = []  # collectives under way: the operator that waits for it, its launch

    def start_collectives(operator: int) -> None:
        """Launches those that come before this operator."""
        while pending and pending[0][0] <= operator:
            _, number, collective = pending.pop(0)
            us, before = us_of(collective), tuple(moved[-1:])
            awaited.append((number * len(step.operators) + collective.awaited, len(launches)))
            call = len(played.launches) + len(pending)
            sources.append(
                Source(call, steps * len(step.operators) + len(pending), collective.name, collective.range, number)
            )
            launches.append(Launch(kernel_name(collective), host_us, us, STREAM, before))

    for launch, source in zip(played.launches, played.sources, strict=True):
        start_collectives(source.operator)
        ended = [place for operator, place in awaited if operator <= source.operator]
        awaited = [(operator, place) for operator, place in awaited if operator > source.operator]
        after = (*(moved[other] for other in launch.after), *ended)
        moved.append(len(launches))
        launches.append(with_changes(launch, after=after) if after != launch.after else launch)
        sources.append(source)
    synchronised = [moved[place] for place in played.synchronised]
    return with_changes(played, launches=launches, sources=sources, synchronised=synchronised)


def predicted_us(
    step: SharedStep, computed_us: float, durations: Mapping[str, float], gpus: int, network: Network
) -> float:
    """Microseconds of a step as measurements of its parts predict it, to be held against the whole step: SIMULATED.

    Args:
        step: from `shared_step`.
        computed_us: measured microseconds of the same step if nothing is exchanged.
        durations: measured microseconds by `Operator.signature`; they say how `computed_us` divides.
        gpus: the number of ranks; "GPUs" may be processes on a CPU.
        network: measured, from `measured_network`.
    """
    played = with_changes(replay(step.operators, 0.0, durations=durations, steps=1), gap_us=0.0)
    scale = computed_us / played.timeline.wall
    launches = [with_changes(launch, kernel_us=scale * launch.kernel_us) for launch in played.launches]
    played = with_changes(played, launches=launches)
    shared = with_collectives(played, step, lambda collective: all_reduce_us(collective.bytes, gpus, network), 0.0)
    return shared.timeline.wall


def kernel_name(collective: Collective) -> str:
    """The name that NCCL's kernel for a sum has in a trace."""
    return f"ncclDevKernel_AllReduce_Sum_{NCCL_TYPES.get(collective.dtype, collective.dtype)}_RING_LL"
