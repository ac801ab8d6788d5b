"""The examples in the docstrings of the README's names run, and print what they say."""

import doctest

import pytest
import synthetic_trace
import torch
from tiny import album_of

import labkit
import labtrace

OF_LABKIT = "CycleGAN make_step fruit folders linear_schedule fit translate export speedups".split()
SHOWN = [*(getattr(labkit, name) for name in OF_LABKIT), labtrace.Trace]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with photos and a trace."""
    monkeypatch.chdir(tmp_path)
    album_of(tmp_path / "photos", 2, 40, 48)
    synthetic_trace.two_streams().save(tmp_path / "trace.json")


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.__name__)
def test_the_example_prints_what_it_says(here, shown):
    names = {"labkit": labkit, "labtrace": labtrace, "torch": torch}
    example = doctest.DocTestParser().get_doctest(shown.__doc__, names, shown.__name__, None, None)
    assert example.examples
    said = []
    assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)
