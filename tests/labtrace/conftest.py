"""Recordings for the tests of labtrace, which need neither PyTorch nor labkit."""

import importlib.util
from pathlib import Path

import pytest
import synthetic_trace

import labtrace

PUBLIC = Path(__file__).parents[2] / "data" / "traces" / "public"
# What labtrace does beside PyTorch and labkit. All other files here import neither: tests/test_house.py.
collect_ignore = []
if not importlib.util.find_spec("torch"):
    collect_ignore += ["test_achieved.py", "test_watch.py", "test_without_torch.py"]


@pytest.fixture(scope="session")
def public_trace():
    """A function that opens a recording which others have published."""
    return lambda name: labtrace.Trace(next(PUBLIC.glob(f"{name}*")))


# Traces whose every number is known, for the tests of figures and widgets.


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """A function that saves a synthetic trace and opens it."""
    return lambda synthetic: labtrace.Trace(synthetic.save(tmp_path_factory.mktemp("trace") / "trace.json"))


@pytest.fixture(scope="module")
def two_streams(load):
    return load(synthetic_trace.two_streams())


@pytest.fixture(scope="module")
def one_kernel(load):
    return load(synthetic_trace.one_kernel())


@pytest.fixture(scope="module")
def on_a_cpu(load):
    return load(synthetic_trace.on_a_cpu())


@pytest.fixture
def ranks(tmp_path):
    for number, trace in enumerate(synthetic_trace.two_ranks()):
        trace.save(tmp_path / f"rank{number}.json")
    return labtrace.Trace(tmp_path)
