"""What a verdict can name: the causes that the replay has priced, and kernels, the largest gain first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from labtrace.events import host
from labtrace.events.dialects import COMPUTE
from labtrace.events.rank import Rank
from labtrace.findings import culprits
from labtrace.findings.causes import CAUSES, COMMUNICATION, HALF, ON_HOST, PAUSES, RANKS
from labtrace.findings.remedies import Remedies

LEAST_SECOND = 1.15  # times faster: a second remedy that brings less is not in the sentence
HARDER = 4.0  # to halve the time of kernels than to drop a wait: so much more it has to bring to be named first
LEAST_FIRST = 0.08  # of the wall time: what brings less is not named before the kernels
MOSTLY_WAITS = 0.9  # of what the communication costs: if waits for other ranks cost more, they are the cause
AHEAD = 1.1  # times what other causes on the host cost, waits have to cost to be named
BEHIND_WAITS = 0.85  # of what the launches cost: if waits cost more, launches only show since the host has waited
MOST_TOLD = 100  # times faster: a larger number tells only that nothing else is there


class Candidate(NamedTuple):
    """A cause that a sentence can name.

    Attributes:
        cause: of the table of remedies, or the name of a kernel.
        times: how many times faster the training would be.
        weight: by which causes are put in order: the share of the time that goes, of kernels divided by `HARDER`, of
            the host's work as far as the GPU itself waited for it.
        text: makes the words for what it costs.
        advice: what to try.
        halved: whether this is the time of kernels, of which a half may go.
    """

    cause: str
    times: float
    weight: float
    text: Callable[[], str]
    advice: str
    halved: bool = False

    def worth(self, kernels: str) -> str:
        """What it brings, in words; `kernels` are those whose time is halved."""
        if self.halved:
            return f"{self.times:.2f}x by halving {kernels}"
        return f"up to {self.times:.2f}x" if self.times < MOST_TOLD else f"over {MOST_TOLD}x"

    def without(self, rank: Rank) -> str:
        """The advice, behind that for another cause: with the name of what it is about."""
        other = self.cause == host.OTHER
        return f"without {CAUSES[host.OTHER].words}{culprits.of_host(rank, host.OTHER)}" if other else self.advice


def candidates(played: Remedies) -> list[Candidate]:
    """What can be named, the largest gain first."""
    kernel = culprits.top_kernel(played.rank, played.table)
    found = [*_causes(played), *_searches(played)]
    if kernel.named:  # better than by its kind
        found = [one for one in found if one.cause not in set(kernel.kinds[kernel.ours])] + [_of_kernel(played, kernel)]
    return sorted(found, key=lambda one: one.weight, reverse=True)


def second(named: list[Candidate], played: Remedies) -> list[Candidate]:
    """What else can go altogether, if it brings enough, in a list."""
    alike = {host.WAITS} | ({COMMUNICATION} if played.mixed else set())
    others = [one for one in named[1:] if one.cause in CAUSES.keys() - alike and not one.halved]
    return [one for one in others if one.cause != PAUSES and one.times >= LEAST_SECOND][:1]


def _causes(played: Remedies) -> list[Candidate]:
    """The causes of the table of remedies. Of two that show through each other one is left."""
    rows = played.rows().query("cause != @host.START_UP").set_index("cause")
    shares = rows["share_of_wall"]
    if shares.get(RANKS, 0.0) > MOSTLY_WAITS * shares.get(COMMUNICATION, 0.0):
        rows = rows.drop(COMMUNICATION, errors="ignore")
    rivals = [share for cause, share in shares.items() if cause in ON_HOST and cause not in (host.LAUNCHES, host.WAITS)]
    waited = shares.get(host.WAITS, 0.0)
    needed = max([played.idle / 2, BEHIND_WAITS * shares[host.LAUNCHES], *(AHEAD * share for share in rivals)])
    rows = rows.drop(host.LAUNCHES if waited >= needed else host.WAITS, errors="ignore")
    found = []
    for cause, row in rows.iterrows():
        halved = cause in COMPUTE
        times = row["times_faster_at_half" if halved else "times_faster_at_most"]
        share = 1 - 1 / times
        weight = share / HARDER if CAUSES[cause].can_go == HALF or share < LEAST_FIRST else share
        if cause in ON_HOST and cause != host.WAITS:
            weight = min(weight, played.idle * played.waits[cause])
        text = partial(_on_host if cause in ON_HOST else _on_gpu, played, cause)
        found.append(Candidate(cause, times, weight, text, played.advice[cause].partition(";")[0], halved))
    return found


def _on_host(played: Remedies, cause: str) -> str:
    if cause == host.WAITS:
        wait = culprits.usual_wait(played.rank, played.found)
        return f"{_idle(played)}, since the host itself waits for it ({wait})"
    named = f"{CAUSES[cause].words}{culprits.of_host(played.rank, cause)}{culprits.when(played.rank)}"
    return f"{_idle(played)}, {mostly(played.waits[cause])} for {named}"


def _on_gpu(played: Remedies, cause: str) -> str:
    if cause == PAUSES:
        return f"{_idle(played)}, mostly in the pauses between {len(played.table):,} short kernels"
    if cause in COMPUTE:
        return f"{_busy(played)}, {mostly(played.shares[cause])} with {CAUSES[cause].words}"
    stages = " between the stages of a pipeline (bubbles)" * (cause == COMMUNICATION and played.pipeline)
    return f"{CAUSES[cause].words}{stages} cost {played.gains[cause] / played.wall:.0%} of the time"


def _of_kernel(played: Remedies, kernel: culprits.TopKernel) -> Candidate:
    """A kernel by its name."""
    times = played.faster(kernel.times)
    weight = (1 - 1 / times) / (HARDER if kernel.halved else 1.0)
    text = partial("{}, {} with {}".format, _busy(played), mostly(kernel.share), kernel.text)
    return Candidate(kernel.name, times, weight, text, kernel.advice, kernel.halved)


def _searches(played: Remedies) -> list[Candidate]:
    """Kernels that cuDNN tries to find the fastest, in a list, if there are any."""
    tried = culprits.searches(played.rank, played.table)
    if not tried.any():
        return []
    times, share = played.without_launches(tried), played.lasting[tried].sum() / played.lasting.sum()
    text = partial("{}, {} with algorithms that are tried for convolutions".format, _busy(played), mostly(share))
    return [Candidate("cudnn.benchmark", times, 1 - 1 / times, text, "cudnn.benchmark = False or equal shapes")]


def _idle(played: Remedies) -> str:
    return f"the GPU waits {played.idle:.0%} of the time"


def _busy(played: Remedies) -> str:
    return f"the GPU is busy {1 - played.idle:.0%} of the time"


def mostly(share: float) -> str:
    """ "mostly (70%)"."""
    if share > 0.995:
        return "entirely"
    return f"mostly ({share:.0%})" if share > 0.5 else f"above all ({share:.0%})"
