"""The sparring partner: a number is a recording, and what is said of it is held to the truth."""

from collections import Counter

import pytest

from labcourse import partner
from labcourse.partner import CAUSES, HIDE, IN_A_ROUND, sparring_partner
from labtrace.errors import LabError
from labtrace.planted import BEHIND, FAULTS, write
from labtrace.trace import Trace


def test_a_round_has_different_faults_and_the_truth_is_that_of_the_neighbour(tmp_path):
    partners = [sparring_partner(number, tmp_path) for number in range(IN_A_ROUND)]
    assert len({one.planted.fault.words for one in partners}) == IN_A_ROUND
    for one in partners:
        recordings = one.trace, Trace(one.planted.neighbour)
        walls = [trace.temporal().set_index("part")["us"]["wall"] for trace in recordings]
        cause = one.planted.fault.cause
        gain = 1 if cause == "start-up" else max(1, walls[0] / walls[1])
        assert one.planted.true_gain == pytest.approx(gain) and one.trace.stamp["SIMULATED"]
        assert one.say(cause, 1.2 * gain).startswith("Right") and one.say(cause, gain / 1.2).endswith("near enough.")
        assert one.say(cause, 1.3 * gain).endswith("far off.") and one.say(cause, gain / 1.3).endswith("far off.")
        other = next(name for name in CAUSES if name != cause)
        assert one.say(other, gain).startswith(f"Not {other!r}. The fault is {cause}")
    with pytest.raises(LabError, match="cause"):
        partners[0].say("the weather", 1)
    unasked = {one.say(*words) for one in partners for words in ((None, None), (one.planted.fault.cause, None))}
    asks = "put your cause and your gain in place of None, and its truth comes here."
    assert unasked == {f"Number {number}: {asks}" for number in range(6)}


def test_half_of_the_host_s_faults_hide_a_second_cause_and_one_in_ten_each_is_of_a_rarer_kind(monkeypatch):
    monkeypatch.setattr(partner, "write", lambda name, *rest: (FAULTS[name].cause, BEHIND[rest[-1]].cause))
    drawn = [sparring_partner(number).planted for number in range(600)]
    causes = Counter(cause for cause, _ in drawn)
    assert all(0.07 < causes[cause] / 600 < 0.13 for cause in ("start-up", "communication and ranks", "nothing"))
    of_host = [(cause, hidden) for cause, hidden in drawn if cause in {*HIDE, "waits of the host"}]
    assert 0.45 < sum(bool(hidden) for _, hidden in of_host) / len(of_host) < 0.65
    assert not [pair for pair in drawn if pair[0] == pair[1] or (pair[1] and pair[0] not in HIDE)]


def test_what_is_hidden_stays_so_the_idle_time_promises_more_than_the_fault_s_remedy_brings(tmp_path):
    planted = write("logger", 1, tmp_path, "loading")
    trace = Trace(planted.path)
    assert Trace(planted.neighbour).gaps(1)["filled_by"].item().startswith("enumerate(DataLoader)")
    wall, idle = trace.temporal().set_index("part")["us"][["wall", "idle"]]
    gaps = trace.gaps(1_000).query("filled_by.str.contains('log')")
    assert 1 / (1 - idle / wall) > 1.25 * planted.true_gain > 1.25
    assert 1 / (1 - (gaps["us"] * gaps["share_filled"]).sum() / wall) == pytest.approx(planted.true_gain, rel=0.05)
    with pytest.raises(LabError, match="loading"):
        write("logger", 1, tmp_path, "loader")
