"""The view "hta": HTA's own tables, and labtrace's numbers beside them."""

from unittest.mock import Mock

import pytest
from hta.trace_analysis import TraceAnalysis
from synthetic_trace import SyntheticTrace, on_the_host
from test_views import told

from labtrace import Trace, show
from labtrace.errors import LabError
from labtrace.show import bars
from labtrace.show.hta import TABLES


def rows(figure):
    """HTA's number, labkit's and how they differ, by HTA's name, from the figure's text alternative."""
    return {row["HTA's name"]: (row["HTA"], row["labtrace"], row["difference"]) for row in told(figure)}


@pytest.fixture
def steps(tmp_path):
    """Two steps: stream 7 busy 10-110 and 160-260, and in the second 300-350."""
    trace = on_the_host(("ProfilerStep#1", 0, 200), ("ProfilerStep#2", 280, 100))
    return trace.launch(2, 10, 100).launch(150, 160, 100).launch(290, 300, 50, name="relu")


def test_hta_and_labtrace_are_side_by_side_with_the_reason(steps, tmp_path):
    figure = show.trace(steps.save(tmp_path / "a.json"), "hta")
    assert rows(figure)["idle_time(us)"] == ("50.0", "90.0", "0.556x")
    assert rows(figure)["kernel_time(us)"] == ("250.0", "340.0", "0.735x")
    assert "HTA leaves out the last step" in figure.layout.meta["text"]
    idle = show.trace(tmp_path / "a.json", "hta", table="idle")  # for HTA until the next kernel, here until its launch
    assert rows(idle)["stream 7, host_wait"][:2] == ("50.0", "78.0")
    assert "a whole gap to host_wait" in idle.layout.meta["text"]


def test_in_a_notebook_the_table_is_html_which_cuts_no_number(steps, tmp_path, monkeypatch):
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    show.view(show.trace(steps.save(tmp_path / "a.json"), "hta"))
    table = displayed[0].data
    assert "HTA's table 'temporal'" in table and 'left">340.0</td>' in table and "last step" in table


def test_every_table_agrees_with_hta_where_both_count_the_same(steps, tmp_path):
    """With its last step, HTA counts all three kernels."""
    file = steps.save(tmp_path / "a.json")
    own = TraceAnalysis(trace_files={3: str(file)}, trace_dir="", include_last_profiler_step=True)
    found = {table: rows(show.trace(own, "hta", table=table)) for table in TABLES}
    assert found["temporal"] == {
        "idle_time(us)": ("90.0", "90.0", ""),
        "compute_time(us)": ("250.0", "250.0", ""),
        "non_compute_time(us)": ("0.0", "0.0", ""),
        "kernel_time(us)": ("340.0", "340.0", ""),
    }
    assert found["kernels"] == {"gemm": ("200.0", "200.0", ""), "relu": ("50.0", "50.0", "")}
    assert found["kernel types"]["COMPUTATION, overlapping others or not"] == ("250.0", "250.0", "")
    assert found["launches"]["launches with a kernel"] == ("3.0", "3.0", "")
    assert found["launches"]["gpu_duration < cpu_duration <= 50, percent"] == ("0.0", "0.0", "")
    assert found["queue"]["stream 7, max"] == ("1.0", "1.0", "")
    assert found["overlap"]["comp_comm_overlap_pctg"] == ("n/a", "n/a", ""), "there is no communication"
    assert "last step" not in show.trace(own, "hta").layout.meta["text"]


@pytest.mark.slow
def test_every_table_of_recordings_by_others(public_trace):
    """Kernels of a CUDA graph, those of eight ranks, and kernels of the old category "Kernel"."""
    graph, ranks, old = map(public_trace, ("rtx5080_cuda_graph", "dlrm_8_ranks", "resnet50_workers0"))
    reasons = {table: show.trace(graph, "hta", table=table).layout.meta["text"] for table in TABLES}
    assert "nor those of a CUDA graph" in reasons["launches"]
    for table in TABLES.keys() - {"idle", "queue"}:  # of one step, in whole microseconds
        found = told(show.trace(ranks, "hta", table=table))
        assert found and not any(row["difference"] for row in found), table
    assert "last step" in show.trace(old, "hta").layout.meta["text"]


def test_a_trace_that_hta_cannot_read_is_named_with_a_way_out(steps, tmp_path, monkeypatch):
    trace = Trace(steps.save(tmp_path / "a.json"))
    monkeypatch.setattr("hta.trace_analysis.TraceAnalysis", Mock(side_effect=TypeError("Cannot cast int16 to int8")))
    with pytest.raises(LabError, match=r"HTA fails .* a.json \(TypeError: Cannot cast.*pandas<3"):
        show.trace(trace, "hta")


def test_a_recording_may_be_a_path_a_folder_or_a_trace(steps, tmp_path):
    file = steps.save(tmp_path / "a.json")
    for given in (file, str(file), tmp_path, Trace(file)):
        figure = show.trace({"it": given}, "temporal")
        assert figure.layout.meta["table"] == show.trace({"it": Trace(file)}).layout.meta["table"]
        assert list(bars.by_name(given)) == ["a.json"]
    with pytest.raises(LabError, match="3 is no trace: give a labtrace.Trace, the path of a trace"):
        show.trace(3)


def test_a_recording_of_two_gpus_is_refused_before_hta_reads_it(tmp_path):
    trace = SyntheticTrace().launch(0, 10, 90)
    trace.event("kernel", "gemm", 10, 90, pid=1, tid=7, stream=7, correlation=trace.call(5))
    with pytest.raises(LabError, match="HTA cannot tell the 2 GPUs"):
        show.trace(trace.save(tmp_path / "a.json"), "hta")
