"""The difference of two traces: every change that was made is told, in the right words."""

import re

import pytest
from synthetic_trace import SyntheticTrace, on_the_host, steps_on_the_host

from labtrace import Trace
from labtrace.errors import LabError
from labtrace.findings.difference import comparison
from labtrace.replay import Launch
from labtrace.replay.trace_file import Replay, Source, write_trace


def training(kernels, steps=2, marked=True, **meta):
    """A trace of `steps` equal steps of 1000 us; `kernels` holds the name, operator and duration of each kernel."""
    trace = SyntheticTrace(**meta)
    for step in range(steps):
        begin = 1000 * step
        if marked:
            trace.range(f"ProfilerStep#{step}", begin, 999)
        for place, (name, operator, us) in enumerate(kernels):
            trace.operator(operator, begin + 20 * place, 10)
            trace.launch(begin + 20 * place + 3, begin + 300 + 50 * place, us, name=name)
    return trace


BEFORE = [("relu", "aten::relu", 10), ("relu", "aten::relu", 20), ("sgemm", "aten::mm", 40), ("copy", "aten::copy_", 5)]
AFTER = [("relu", "aten::relu", 15), ("hgemm", "aten::mm", 20), ("copy", "aten::copy_", 6), ("norm", "aten::norm", 4)]


@pytest.fixture
def both(tmp_path):
    """The training before a change, three steps of it, and after it, two steps."""
    recorded = {"before.json": training(BEFORE, 3), "after.json": training(AFTER, 2)}
    return [Trace(trace.save(tmp_path / name)) for name, trace in recorded.items()]


def rows(table):
    assert table["difference_us"].abs().is_monotonic_decreasing
    columns = ["count", "us", "count_other", "us_other", "change"]
    return {row.name: tuple(getattr(row, column) for column in columns) for row in table.itertuples(index=False)}


def test_kernels_are_told_apart_by_name(both):
    before, after = both
    assert rows(before.diff(after)) == {
        "sgemm": (1, 40, 0, 0, "vanished"),
        "hgemm": (0, 0, 1, 20, "appeared"),
        "relu": (2, 30, 1, 15, "less often"),
        "norm": (0, 0, 1, 4, "appeared"),
        "copy": (1, 5, 1, 6, "slower"),
    }
    assert rows(after.diff(before))["copy"] == (1, 6, 1, 5, "faster")
    assert set(before.diff(before)["change"]) == {"same"}
    operators = before.diff(after).set_index("name")["operator"].to_dict()
    assert operators == {name: operator for name, operator, _ in (*BEFORE, *AFTER)}


def test_kernels_of_the_steps_before_the_first_recorded_one_are_of_no_step(both, tmp_path):
    """As with a CUDA graph: the GPU still runs what was launched before the recording began."""
    late = training(BEFORE, 3)
    for event in late.events:
        event["ts"] += 1000
    for place in range(20):
        late.kernel(20 * place, 15, name="relu")
    late.kernel(2350, 5, name="copy")  # its launch is lost, and it ran in the steps
    late.launch(4001, 4010, 7, name="afterwards")
    table = both[0].diff(Trace(late.save(tmp_path / "late.json"))).set_index("name")
    assert "afterwards" not in table.index
    assert table.loc["relu", ["us_other", "change"]].tolist() == [30, "same"]
    assert table.loc["copy", "count_other"] == pytest.approx(4 / 3)
    steps = [Trace(tmp_path / name).summary()["step_us"].item() for name in ("before.json", "late.json")]
    assert steps == [1000, 1000], "the walls that can be compared"


def test_traces_without_steps_are_compared_whole_and_with_them_not_at_all(both, tmp_path):
    plain = Trace(training(BEFORE, 3, marked=False).save(tmp_path / "plain.json"))
    assert rows(plain.diff(plain))["relu"] == (6, 90, 6, 90, "same")
    for one, other in ((plain, both[0]), (both[0], plain)):
        with pytest.raises(LabError, match="plain.json: no steps, which before.json has"):
            one.diff(other)


def test_where_no_step_is_marked_kernels_of_before_the_recording_do_not_count(tmp_path):
    plain, late = training(BEFORE, 3, marked=False), training(BEFORE, 3, marked=False)
    for place in range(20):
        late.kernel(-400 + 20 * place, 15, name="relu")
    before, after = (Trace(each.save(tmp_path / f"{id(each)}.json")) for each in (plain, late))
    assert rows(before.diff(after))["relu"] == (6, 90, 6, 90, "same")
    assert "took 2,155 us and takes 2,155: the same" in comparison(before.ranks, after.ranks).words


def test_a_difference_to_a_simulation_is_one(both, tmp_path):
    played = Replay([Launch("relu", 5.0, 5.0)], [Source(0, -1, "", "", 0)], (), "A100", {})
    simulated = Trace(write_trace(played, tmp_path / "simulated.json"))
    for table in (both[0].diff(simulated), simulated.diff(both[0])):
        assert table.columns.name == "SIMULATED" and table.attrs["stamp"]["SIMULATED"]
    assert both[0].diff(both[1]).columns.name is None


def test_ranks_are_compared_with_their_own_and_several_on_average(both, load):
    ranks = load(*(training(kernels, rank=number) for number, kernels in enumerate((AFTER, BEFORE))))
    table = ranks.diff(both[1])  # of rank 0
    assert set(table["rank"]) == {0} and set(table["change"]) == {"same"}
    assert set(ranks.diff(ranks)["rank"]) == {0, 1}
    alone = load(training(BEFORE, rank=1))
    assert set(alone.diff(both[0])["change"]) == {"same"}  # one rank each
    kinds = comparison(ranks.ranks, ranks.ranks).tables["kind"].set_index("kind")
    assert kinds.loc["matrix products", "before_us"] == (40 + 20) / 2
    assert "Only ranks in both are compared: 0." in comparison(ranks.ranks, both[0].ranks).words


def test_by_operator_new_names_of_kernels_are_no_new_work(both):
    table = both[0].diff(both[1], by="operator").set_index("operator")
    changes = {"aten::mm": "faster", "aten::relu": "less often", "aten::norm": "appeared", "aten::copy_": "slower"}
    assert table["change"].to_dict() == changes
    kinds = both[0].diff(both[1], by="kind").set_index("kind")
    assert kinds.loc["matrix products", ["us", "us_other"]].tolist() == [40, 20]
    with pytest.raises(LabError, match="by='kernel'"):
        both[0].diff(both[1], by="kernel")


def test_the_kernels_of_a_graph_have_no_operator_so_kernels_are_compared(both, tmp_path):
    graph = SyntheticTrace()
    for step in range(3):
        graph.range(f"ProfilerStep#{step}", 1000 * step, 999).operator("GraphedBackward", 1000 * step, 30)
        call = graph.call(1000 * step + 3, name="cudaGraphLaunch")
        for place, (name, _, us) in enumerate(BEFORE):
            graph.kernel(1000 * step + 300 + 50 * place, us, call, name)
    graph = Trace(graph.save(tmp_path / "graph.json"))
    compared = comparison(both[0].ranks, graph.ranks)
    assert "no operator, as in a CUDA graph, so kernels are compared" in compared.words
    assert list(compared.tables) == ["steps", "kind", "host call", "kernel"]
    assert set(compared.tables["kernel"]["change"]) == {"same"}
    assert list(comparison(both[0].ranks, both[1].ranks).tables) == ["steps", "kind", "operator", "host call"]


def taking(walls, path):
    """A trace whose steps take so long, with a short one after them: the GPU is busy for half of each."""
    trace, begin = SyntheticTrace(), 0
    for number, us in enumerate([*walls, 100]):
        trace.range(f"ProfilerStep#{number}", begin, us).launch(begin, begin + 10, us / 2)
        begin += us
    return Trace(trace.save(path)).ranks


SENTENCES = [
    ([2000] * 3, [1000] * 5, "took 2,000 us and takes 1,000: 2.00 times faster; the GPU waits 50% of the time, as"),
    ([40_000] * 3, [50_000] * 3, "A step took 40 ms and takes 50: 1.25 times slower"),
    ([900, 1000, 1100, 1200], [950, 1050, 1150], "the same, within the spread of the steps"),
    ([1000] * 4, [1005] * 4, "A step took 1,000 us and takes 1,005: the same"),
    ([1000], [2000] * 3, "2.00 times slower; the GPU waited 48% of the time and waits 50%. A single step does not"),
]


@pytest.mark.parametrize(("before", "after", "expected"), SENTENCES)
def test_the_sentence_says_what_changed_and_what_is_within_the_spread(before, after, expected, tmp_path):
    both = (taking(walls, tmp_path / f"{name}.json") for name, walls in (("before", before), ("after", after)))
    assert re.search(expected, comparison(*both).words)


HIDDEN_NOW, HIDDEN_BEFORE = "0.3 ms a step and is for 0.0: now it is", "0.0 ms a step and is for 0.3: before it was"
EXPOSED = [(400, 50, HIDDEN_NOW), (50, 400, HIDDEN_BEFORE), (400, 400, "")]


@pytest.mark.parametrize(("begins", "begins_after", "expected"), EXPOSED)
def test_communication_that_became_hidden_or_exposed_is_told(load, begins, begins_after, expected):
    """Kernels of 400 us in each step, and communication of 300 us beside them or after them."""
    both = []
    for begin in (begins, begins_after):
        trace = training([("gemm", "aten::mm", 400)], 4)
        for step in range(0, 4000, 1000):
            trace.launch(step + 5, step + 300 + begin, 300, name="ncclDevKernel_AllGather", stream=20)
        both.append(load(trace).ranks)
    found = comparison(*both)
    told = f"Communication was exposed for {expected} hidden behind other work."
    assert told in found.words if expected else "exposed" not in found.words
    assert found.tables["kind"].set_index("kind")["before_us"]["communication, exposed"] == 300 * (begins == 400)


@pytest.mark.parametrize(("late", "ends", "lasts"), [(0, 1600, 1500), (200, 1600, 1300), (0, 1000, 1500)])
def test_a_step_that_is_alone_begins_with_its_mark_or_after_the_work_of_the_step_before(late, ends, lasts, tmp_path):
    """The GPU's first work comes 1000 us after the mark; `late`, it works on the step before until then.

    A step that ends before its only launch has launched nothing.
    """
    trace = SyntheticTrace()
    if late:
        trace.launch(0, 50, 100 + late)
    trace.range("ProfilerStep#1", 150, ends - 150)
    trace.launch(1100, 1150, 500)
    found = comparison(*[Trace(trace.save(tmp_path / "trace.json")).ranks] * 2).words
    assert re.search(f"A step took {lasts:,} us .* waits {1 - 500 / lasts:.0%} of the time", found)


def test_by_operator_its_calls_are_counted_however_many_kernels_each_launches(tmp_path):
    split, whole = SyntheticTrace(), SyntheticTrace()
    for trace, kernels in ((split, 2), (whole, 1)):
        trace.operator("aten::addmm", 0, 50)
        for number in range(kernels):
            trace.launch(5 + 10 * number, 100 + 100 * number, 40, name="gemm")
    traces = [Trace(one.save(tmp_path / f"{n}.json")) for n, one in enumerate((split, whole))]
    table = traces[0].diff(traces[1], by="operator")
    assert table[["count", "us", "count_other", "us_other", "change"]].to_numpy().tolist() == [[1, 80, 1, 40, "faster"]]


def test_without_a_gpu_operators_are_compared_on_the_processor(on_a_cpu, load):
    slower = on_the_host(("ProfilerStep#0", 0, 80), ("aten::conv2d", 0, 60))
    compared = comparison(on_a_cpu.ranks, load(slower).ranks)
    assert compared.words.startswith("A step took 50 us and takes 80: 1.60 times slower. A single step")
    table = compared.tables["operator"].set_index("operator")
    assert table.loc["aten::conv2d", ["before_us", "after_us", "change"]].tolist() == [30, 60, "slower"]


def test_where_some_steps_take_much_longer_the_means_are_told_too(load):
    """As with five loader workers: the median step does not wait."""
    walls, product = ([20_000] * 10, [5_000, 5_000, 5_000, 5_000, 200_000] * 2), [("aten::mm", 0, 1000)]
    words = comparison(*(load(steps_on_the_host(*((us, product) for us in own))).ranks for own in walls)).words
    assert words.startswith("A step took 20 ms and takes 5: 4.00 times faster. These are medians, and some steps take")
    assert "much longer: the means are 20 and 44 ms." in words


def test_without_an_operator_work_on_the_processor_is_named_by_its_kind(load):
    """As it is by kind, and in the steps that each verdict is about."""
    inside = [("enumerate(DataLoader)#_Iter.__next__", 0, 900), ("aten::mm", 1000, 500)]
    ranks = load(steps_on_the_host(*((us, inside) for us in (3500, 3500, 3500, 3500, 61_500)))).ranks
    tables = comparison(ranks, ranks).tables
    expected = {"data loading": 900, "Python and dispatch": 100, "work outside of PyTorch": 2000}
    for by, product in (("kind", "matrix products"), ("operator", "aten::mm")):
        assert tables[by].set_index(by)["before_us"].to_dict() == {**expected, product: 500}
    assert tables["steps"]["steps"].tolist() == [4, 4]
