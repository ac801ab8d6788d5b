"""A sparring partner: recordings with a hidden fault, as many as one likes, and the truth once one has said what it is.

partner = sparring_partner(7)
partner.trace  # look at it
print(partner.say("copies", 1.5))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from labtrace.errors import LabError, check_known
from labtrace.planted import BEHIND, FAULTS, Planted, write
from labtrace.trace import Trace

# The names in `labtrace.planted.FAULTS` of those that show in the recording of one process.
NAMES = (
    *("loader", "loader_nth", "loader_own", "loader_inline", "launches", "optimiser", "item", "wait_each"),
    *("logger", "garbage", "checkpoint", "some_steps", "cpu_operator", "to_gpu", "to_host", "in_place"),
    *("fp32", "custom_kernel", "tail", "first_calls", "first_memory", "first_compile"),
    *("sending_one_file", "half_hidden", "one_file", "prefetched", "graph", "hidden"),
)
CAUSES = tuple(dict.fromkeys(FAULTS[name].cause for name in NAMES))
# Causes that may hide another one of these.
HIDE = {"loading of data", "launching", "other work of the host"}
IN_A_ROUND = 6  # recordings with different faults: those of the numbers 0 to 5, 6 to 11, ...
NEAR = 1.25  # a gain that is told may be so many times the true one, or the true one so many times as much


@dataclass(frozen=True)
class Partner:
    """A SIMULATED recording whose fault is known.

    Attributes:
        number: decides the fault and all that is drawn.
        planted: the recording and the truth of it.
    """

    number: int
    planted: Planted = field(repr=False)

    @property
    def trace(self) -> Trace:
        """The recording."""
        return Trace(self.planted.path)

    def near(self, times_faster: float) -> bool:
        """Whether this is about how many times as fast the training is without its fault."""
        return 1 / NEAR <= times_faster / self.planted.true_gain <= NEAR

    def say(self, cause: str | None, times_faster: float | None) -> str:
        """The truth, and whether it was said, or, before something was said, a request to do so.

        Args:
            cause: one of `CAUSES`, or None.
            times_faster: what the best remedy would bring, or None; 1 if nothing is wrong, or it is start-up.

        Raises:
            LabError: it is no such cause.
        """
        if cause is None or times_faster is None:
            return f"Number {self.number}: put your cause and your gain in place of None, and its truth comes here."
        check_known("cause", cause, CAUSES)
        fault, behind, gain = self.planted.fault, self.planted.behind.words, self.planted.true_gain
        verdict = "Right." if cause == fault.cause else f"Not {cause!r}."
        near = "near enough" if self.near(times_faster) else "far off"
        faster = f"Without it the same training is {gain:.2f} times as fast (SIMULATED)"
        faster = faster if gain > 1 else "Its steps cannot become faster by a remedy for one of these causes"
        hidden = f"; behind it, and there without it, too: {behind}" if behind else ""
        words = fault.words.removeprefix("nothing: ") + hidden
        return f"{verdict} The fault is {fault.cause} ({words}). {faster}; you said {times_faster:.2f}, {near}."


def sparring_partner(number: int, folder: Path | str = "out/partners") -> Partner:
    """The recording of this number, with its neighbour without the fault, written to a folder of that name.

    Two of three faults whose cause is in `HIDE` hide a second cause, which the neighbour has, too.

    Raises:
        LabError: `number` is no whole number of at least 0.
    """
    if not (isinstance(number, int) and number >= 0):
        raise LabError(f"sparring_partner({number!r}): give its number, 0 or more.")
    name = Random(number // IN_A_ROUND).sample(NAMES, IN_A_ROUND)[number % IN_A_ROUND]
    cause = FAULTS[name].cause
    hidden = [key for key, one in BEHIND.items() if cause in HIDE and one.cause in HIDE - {cause}]
    behind = Random(f"behind {number}").choice(["", *hidden])
    return Partner(number, write(name, number, Path(folder) / str(number), behind))
