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
    """A function that saves a synthetic trace and opens it; several are ranks in one folder."""

    def opened(*ranks):
        folder = tmp_path_factory.mktemp("trace")
        files = [trace.save(folder / f"trace{number or ''}.json") for number, trace in enumerate(ranks)]
        return labtrace.Trace(folder if len(files) > 1 else files[0])

    return opened


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
def ranks(load):
    return load(*synthetic_trace.two_ranks())
