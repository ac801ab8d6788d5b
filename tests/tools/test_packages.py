"""The packages that answers get: labkit's own answers raise an error there, and the rest is as it was."""

from tools.grading import packages


def test_a_function_keeps_its_first_lines_and_its_neighbours_stay():
    source = '@cached\ndef own(x):\n    """Says what."""\n    y = x\n\n    return y\n\n\ndef other():\n    return 1\n'
    told = "your answer calls the library's own a.own: write it yourself."
    shown = packages.without(source, {("own", 1): "a.own"})
    assert shown == f"@cached\ndef own(x):\n    raise NotImplementedError({told!r})\n\n\ndef other():\n    return 1\n"
