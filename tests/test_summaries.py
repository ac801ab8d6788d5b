"""labkit.course.lessons: the tables that the lessons show."""

import math
from types import SimpleNamespace

import pandas as pd

from labkit.course.lessons import learning_summary, ratio_table, work_by_player


def test_a_summary_counts_a_run_that_never_reaches_the_goal_as_infinite():
    rows = []
    for name, fgs in {"good": [8, 8, 8], "bad": [20, 20, 20]}.items():
        for seed in (0, 1):
            for look, fg in enumerate(fgs, 1):
                spent = {"images": 100 * look, "seconds": 10.0 * look, "flops": 2e11 * look}
                rows.append({"name": name, "seed": seed, **spent, "fg": fg, "bg": 2.0, "changed": 1.0})
    table = learning_summary(pd.DataFrame(rows), 15)
    good, bad = table.loc["good"], table.loc["bad"]
    assert (good["GFLOP a step"], good["ms a step"]) == (2.0, 100.0)
    goal = ("images to the goal", "seconds to the goal", "TFLOP to the goal")
    assert [good[column] for column in goal] == [200, 20, 0.4]  # at the second look that passes
    assert all(math.isinf(bad[column]) for column in goal)
    assert table["runs that reached it"].tolist() == ["100%", "0%"]
    assert bad["fg in 15 s"] == 20


def test_work_is_summed_by_player():
    ranges = {"generators forward": 3, "generators backward": 4, "discriminators judge": 2, "copies": 0}
    operators = [SimpleNamespace(range=name, flops=flops) for name, flops in ranges.items()]
    assert work_by_player(operators) == {"generators": 7, "discriminators": 2}


def test_a_ratio_divides_the_row_by_the_column():
    values = pd.Series({"a": 6.0, "b": 3.0, "c": 2.0})
    assert ratio_table(values, ["a", "b"], ["c"]).to_dict() == {"c": {"a": 3.0, "b": 1.5}}
