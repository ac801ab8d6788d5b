"""The sparring partner: a number is a recording, and what is said of it is held to the truth."""

import pytest

from labcourse.partner import CAUSES, IN_A_ROUND, sparring_partner
from labtrace.errors import LabError
from labtrace.trace import Trace


def test_a_round_has_different_faults_and_the_truth_is_that_of_the_neighbour(tmp_path):
    partners = [sparring_partner(number, tmp_path) for number in range(IN_A_ROUND)]
    assert len({one.planted.fault.words for one in partners}) == IN_A_ROUND
    for one in partners:
        recordings = one.trace, Trace(one.planted.neighbour)
        walls = [trace.temporal().set_index("part")["us"]["wall"] for trace in recordings]
        gain, cause = max(1, walls[0] / walls[1]), one.planted.fault.cause
        assert one.planted.true_gain == pytest.approx(gain) and one.trace.stamp["SIMULATED"]
        assert one.say(cause, 1.2 * gain).startswith("Right") and one.say(cause, gain / 1.2).endswith("near enough.")
        assert one.say(cause, 1.3 * gain).endswith("far off.") and one.say(cause, gain / 1.3).endswith("far off.")
        other = next(name for name in CAUSES if name != cause)
        assert one.say(other, gain).startswith(f"Not {other!r}. The fault is {cause}")
    with pytest.raises(LabError, match="cause"):
        partners[0].say("the weather", 1)
