"""The packages that answers get: labkit's own answers raise an error there, and the rest is as it was."""

import subprocess
import sys

from labcourse.check import originality
from labtrace.events.intervals import Union, busy
from tools.grading import packages


def test_labkits_own_answers_and_their_parts_are_taken_out_and_the_checks(tmp_path):
    packages.copy_packages(tmp_path, originality.library_code("03"))
    program = (
        "from labcourse import check\n"
        "from labtrace.events import intervals\n"
        "check.busy(len)\n"
        "for own in (intervals.busy, intervals.Union):\n"
        "    try:\n        own([0], [1])\n"
        "    except NotImplementedError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
    )
    told = [f"your answer calls the library's own {one.__module__}.{one.__name__}" for one in (busy, Union)]
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == told, done.stderr
    assert not list((tmp_path / "labcourse" / "check").glob("notebook*"))


def test_a_function_keeps_its_first_lines_and_its_neighbours_stay():
    source = '@cached\ndef own(x):\n    """Says what."""\n    y = x\n\n    return y\n\n\ndef other():\n    return 1\n'
    told = "your answer calls the library's own a.own: write it yourself."
    shown = packages.without(source, {("own", 1): "a.own"})
    assert shown == f"@cached\ndef own(x):\n    raise NotImplementedError({told!r})\n\n\ndef other():\n    return 1\n"
