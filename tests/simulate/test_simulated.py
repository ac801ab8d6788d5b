"""Every table that comes from a simulation says so: in its stamp, and in a column or the name of its columns."""

import inspect

import pytest

import labkit
from labkit.simulate import replay, step_operators
from labtrace.replay.trace_file import write_trace

METHODS = {name for name, _ in inspect.getmembers(labkit.Trace, inspect.isfunction) if name[0] != "_"}
# Without those of two traces, of shapes, without a GPU, and those that are no tables.
TABLES = sorted(METHODS - {"diff", "named_by", "achieved", "steps", "processor", "what_if"})


def says_so(table):
    """Whether a table is marked in both places."""
    shown = "SIMULATED" in table.columns or table.columns.name == "SIMULATED"
    return shown and table.attrs["stamp"]["SIMULATED"] is True


@pytest.fixture(scope="module")
def simulated(tiny, tmp_path_factory):
    """The trace of a tiny step on a GPU that nobody has."""
    played = replay(step_operators(tiny(), size=32), 10.0)
    return labkit.Trace(write_trace(played, tmp_path_factory.mktemp("trace") / "trace.json.gz"))


@pytest.mark.slow
def test_every_table_of_a_simulated_trace_says_so(simulated):
    tables = {name: getattr(simulated, name)() for name in TABLES}
    assert {"temporal", "idle", "kernels", "summary", "operators", "ranges", "communication"} <= tables.keys()
    assert [name for name, table in tables.items() if not says_so(table)] == []
    for by in ("step", "rank"):
        assert says_so(simulated.temporal(by))
    assert "SIMULATED" in str(tables["summary"]) and "SIMULATED" in tables["summary"][["bound_by"]].to_html()
