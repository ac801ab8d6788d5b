"""How a data-parallel step scales to many GPUs, before buying them: SIMULATED.

Every GPU computes a part of the batch, and gradients are averaged (Li et al. 2020). As NCCL does it, a collective
starts when the operators before it have run and the previous collective has ended, and the main stream continues
meanwhile, up to the first operator that may read the result. What the model leaves out makes real steps slower: ranks
wait for the slowest of them, links are shared with other jobs, and collectives share multiprocessors and memory with
the kernels beside them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from dataclasses import replace as with_changes

import pandas

from labkit.simulate.clusters import CLUSTERS, Cluster, all_reduce_us
from labkit.simulate.collectives import Collective, SharedStep
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.operator_replay import HOST_US, of_measured, profiled_stream, replay
from labkit.stamp import stamp
from labtrace.errors import check_known
from labtrace.replay.launch_queue import Launch, Timeline, play
from labtrace.replay.trace_file import Replay

GPUS = tuple(2**power for power in range(11))
STREAM = profiled_stream(99)  # of the collectives: no step has as many streams


def scaling(
    steps: SharedStep | Sequence[SharedStep],
    clusters: Mapping[str, Cluster] = CLUSTERS,
    gpus: Sequence[int] = GPUS,
    host_us: float = HOST_US,
    device: str = "A100",
) -> pandas.DataFrame:
    """Speed, efficiency and memory of a step on more and more GPUs: SIMULATED, a row for each cluster and number.

    With one step every GPU keeps its batch, so the whole batch grows with the GPUs: weak scaling. With steps of
    several batch sizes the whole batch is the largest of them, and the more GPUs, the less for each: strong scaling.
    It ends where no step of the smaller batch size was counted, at the latest with a picture a GPU.

    Args:
        steps: one or more, from `shared_step`.
        clusters: by the name of their network.
        gpus: numbers of GPUs.
        host_us: microseconds of host time for every launch: an assumption, vary it.
        device: the roofline, one of `ROOFLINES`.

    Returns:
        | column | meaning |
        |---|---|
        | SIMULATED | True |
        | device | the device that is simulated |
        | host_us | microseconds of host time for every launch |
        | scaling | "weak" or "strong" |
        | network, gpus | the name of the row's cluster, and its number of GPUs |
        | batch | pictures of each domain on a GPU in a step |
        | step_us | microseconds of a step |
        | communication_us | the sum over its collectives |
        | exposed_us | how much shorter the step would be if they took no time |
        | images_per_s | pictures of each domain, of all GPUs |
        | efficiency | pictures a second and GPU over those of one GPU by itself |
        | memory | bytes of tensors on a GPU |

        ``attrs["stamp"]`` has all assumptions, and the range of `error_range` as "of_measured". It is about one GPU:
        nothing was compared with several.

    Raises:
        LabkitError: the device is unknown, or a number of GPUs is not one of whole nodes.
    """
    check_known("device", device, ROOFLINES)
    roofline = ROOFLINES[device]
    counted = {step.batch_size: step for step in ([steps] if isinstance(steps, SharedStep) else steps)}
    played = {}
    for size, step in counted.items():
        # Kernels of one stream cannot slow each other down: with a share of 0 that need not be found out.
        share = float(len({operator.stream for operator in step.operators}) > 1)
        played[size] = replay(step.operators, host_us, roofline, steps=1, share=share)
    largest = max(counted)
    alone = played[largest].timeline.wall
    kind = "weak" if len(counted) == 1 else "strong"
    common = {"SIMULATED": True, "device": device, "host_us": host_us, "scaling": kind}
    rows = []
    for name, cluster in clusters.items():
        for number in gpus:
            batch = largest if kind == "weak" else largest // number
            if batch not in counted:
                continue
            step, free_us = counted[batch], played[batch].timeline.wall
            us = {collective: all_reduce_us(collective.bytes, number, cluster) for collective in step.collectives}
            communication, step_us = sum(us.values()), free_us
            if communication:
                step_us = max(free_us, with_collectives(played[batch], step, us.__getitem__, host_us).wall)
            images = number * batch / step_us * 1e6
            efficiency = images / (number * largest / alone * 1e6)
            times = {"step_us": step_us, "communication_us": communication, "exposed_us": step_us - free_us}
            speeds = {"images_per_s": images, "efficiency": efficiency, "memory": step.memory}
            rows.append({**common, "network": name, "gpus": number, "batch": batch, **times, **speeds})
    table = pandas.DataFrame(rows)
    assumed = {"host_us": host_us, "roofline": asdict(roofline), **of_measured(step.operators, roofline)}
    known = {name: asdict(cluster) for name, cluster in clusters.items()}
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": f"SIMULATED {device}", **assumed, "clusters": known}
    return table


def with_collectives(
    played: Replay, step: SharedStep, us_of: Callable[[Collective], float], host_us: float
) -> Timeline:
    """One step's operators, played with its collectives among them on a stream of their own: SIMULATED.

    Args:
        played: from `replay` of `step.operators`, for one step.
        us_of: microseconds of a collective.
        host_us: microseconds of host time to launch one.
    """
    pending = deque(step.collectives)
    launches: list[Launch] = []
    moved: list[int] = []  # where each of the replay's launches is now
    awaited: list[tuple[int, int]] = []  # collectives under way: the operator that waits for it, its launch
    for launch, source in zip(played.launches, played.sources, strict=True):
        while pending and pending[0].ready <= source.operator:
            collective = pending.popleft()
            awaited.append((collective.awaited, len(launches)))
            launches.append(Launch(collective.name, host_us, us_of(collective), STREAM, tuple(moved[-1:])))
        ended = [place for operator, place in awaited if operator <= source.operator]
        awaited = [(operator, place) for operator, place in awaited if operator > source.operator]
        moved.append(len(launches))
        after = (*(moved[other] for other in launch.after), *ended)
        launches.append(launch if after == launch.after else with_changes(launch, after=after))
    synchronised = [moved[place] for place in played.synchronised]
    return play(launches, synchronised, played.queue_limit, played.gap_us)
