"""`Trace.audit`: every fault that is made has its row and its share of the time, and a sound recording has none."""

import itertools
from random import Random

import pytest
from synthetic_trace import SyntheticTrace, on_a_cpu, two_ranks, two_streams

from labtrace.trace import Trace

FAULTS = [
    (lambda trace: trace.call(400), "launches whose kernel is missing", "temporal"),
    (lambda trace: trace.kernel(800, 10), "whose launch is missing", "queue"),
    (lambda trace: trace.launch(900, 750, 10), "begin before their launch", "queue"),
    (lambda trace: trace.launch(600, 605, 50, stream=20), "one stream that overlap", "concurrency"),
    (lambda trace: trace.events.append(MYSTERY), "without a category", "kernels"),
    (lambda trace: trace.events.append(HALF), "begins and ends without a duration", "operators"),
]
MYSTERY = {"ph": "X", "name": "mystery", "ts": 3, "dur": 4}
HALF = {"ph": "B", "cat": "cpu_op", "name": "aten::half", "pid": 1, "tid": 1, "ts": 3}


@pytest.mark.parametrize(("fault", "what", "table"), FAULTS, ids=[what for _, what, _ in FAULTS])
def test_every_fault_has_its_row(tmp_path, fault, what, table):
    trace = two_streams()
    fault(trace)
    found = Trace(trace.save(tmp_path / "trace.json")).audit()
    row = found[found["what"].str.contains(what)].iloc[0]
    assert row["events"] == 1 and table in row["tables"] and row["rank"] == 0 and 0.01 < row["share"] < 0.5


def test_what_can_change_less_than_a_hundredth_of_the_time_distrusts_nothing(tmp_path):
    trace = two_streams().launch(380, 400, 0)  # it divides a gap, and nothing else
    found = Trace(trace.save(tmp_path / "trace.json"))
    row = found.audit().iloc[0]
    assert "no duration" in row["what"] and row["tables"] == "" and row["share"] == pytest.approx(1 / 600)
    assert found.idle().query("scope == 'device'")["us"].sum() == 220 and found.kernels()["count"].sum() == 6


def test_where_most_kernels_have_no_duration_there_is_no_verdict(tmp_path):
    trace = busy()
    for event in trace.events:
        event["dur"] = 0 if event["cat"] == "kernel" else event["dur"]
    found = Trace(trace.save(tmp_path / "trace.json"))
    assert found.audit()["what"].str.contains("no duration").any() and found.summary()["bound_by"].item() == "unknown"


def busy(begin=0):
    """Five steps of 40 launches; the GPU is 100 us a kernel and always behind. Before them three kernels of a step."""
    trace = SyntheticTrace()
    for number in range(3):
        trace.kernel(begin + 60 * number, 55, name="tail")
    for step in range(5):
        begin += 4100
        trace.range(f"ProfilerStep#{step}", begin, 900)
        trace.launches(40, begin, begin + 30, 100, every=20, gpu_every=101)
        trace.call(begin + 800, 3276, "cudaDeviceSynchronize")
    return trace


WAITS = [("cudaDeviceSynchronize", 2), ("hipMemcpyWithStream", 1), ("cuStreamSynchronize", 2), ("urQueueFinish", 1)]


@pytest.mark.parametrize(("wait", "streams"), WAITS)
def test_kernels_that_begin_after_the_host_waited_for_them_have_another_clock(tmp_path, wait, streams):
    trace = busy()
    for number, event in enumerate(trace.events):
        if event["cat"] == "kernel":
            event["args"]["stream"] = 7 + number // 2 % streams
    trace.events = [event for event in trace.events if event["name"] != "tail"]
    for event in trace.events:
        event["name"] = wait if event["name"] == "cudaDeviceSynchronize" else event["name"]
    assert Trace(trace.save(tmp_path / "trace.json")).audit().empty
    for event in trace.events:
        event["ts"] += 6000 if event["cat"] == "kernel" else 0  # later than the waits
    late = Trace(trace.save(tmp_path / "trace.json"))
    (row,) = late.audit().to_dict("records")
    assert "begin after a call that waited for them" in row["what"] and row["events"] == 200 and "idle" in row["tables"]
    causes = late.idle().query("us > 0")["cause"]
    assert set(causes) == {"unknown"}
    verdict = late.summary().iloc[0]
    assert verdict["bound_by"] == "unknown" and "not launched yet" not in verdict["why"]
    assert late.temporal(by="step")["step"].nunique() == 5, "whose kernels they are is known all the same"


def test_kernels_an_hour_after_all_calls_have_another_clock(tmp_path):
    opened = Trace(SyntheticTrace().launches(20, 0, 3.6e9, 80, every=100).save(tmp_path / "trace.json"))
    (row,) = opened.audit().itertuples()
    assert (row.what, row.events) == ("events a minute or more away from all others: a wrong time", 20)
    assert opened.summary()["bound_by"].item() == "unknown"


def starts(late_us, name="cudaLaunchKernel"):
    trace = SyntheticTrace()
    for number in range(12):
        trace.kernel(1000 * number + 10 + late_us, 300, trace.call(1000 * number, name=name))
    return trace


def test_ten_launches_to_an_idle_gpu_do_not_all_take_long(tmp_path):
    each = [Trace(starts(*how).save(tmp_path / "trace.json")) for how in ((0,), (400,), (400, "cudaGraphLaunch"))]
    found = [trace.audit()["what"].str.contains("two clocks").any() for trace in each]
    assert found == [False, True, False], "a graph may take so long to reach the GPU"
    verdict = each[1].summary().iloc[0]
    assert verdict["bound_by"] == "unknown" and "not sound" in verdict["why"]


def test_a_duration_that_covers_others_of_its_stream_ends_where_the_next_begins(tmp_path):
    trace = busy()
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    kernels[50]["dur"] = 9000
    cut = Trace(trace.save(tmp_path / "trace.json"))
    row = cut.audit().iloc[-1]
    assert "cut at the begin of the next" in row["what"] and row["events"] == 1 and "summary" in row["tables"]
    assert cut.summary()["why"].item().startswith("This recording is not sound: 1 kernels that seem to run")
    kernels[50]["dur"] = 101
    sound = Trace(trace.save(tmp_path / "trace.json"))
    assert cut.temporal().equals(sound.temporal()) and cut.kernels().equals(sound.kernels())


def graphs(lost=()):
    """Ten steps that replay a graph of 40 kernels, without those that were lost: pairs of step and number."""
    trace = SyntheticTrace()
    for step in range(10):
        trace.range(f"ProfilerStep#{step}", 3000 * step, 2100)
        replay(trace, 3000 * step + 50, [number for number in range(40) if (step, number) not in lost], 50)
    return trace


def replay(trace, begin, numbers, every):
    """A graph of kernels with these numbers, which begin after 50 us, one `every` so many."""
    graph = trace.call(begin, 20, "cudaGraphLaunch")
    for number in numbers:
        trace.kernel(begin + 50 + every * number, every - 2, graph, name=f"g{number}")


LOST = {
    "one, and many in a row": [(3, 1), *((4, number) for number in range(9, 28))],
    "the same in some": list(itertools.product((1, 3, 4, 8), range(20, 40))),
    "the same in most": list(itertools.product(range(9), range(20, 40))),
    "others in each": [(step, number) for step in range(10) for number in Random(step).sample(range(40), 10)],
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_kernels_that_replays_of_a_graph_lost_are_found(tmp_path, lost):
    found = Trace(graphs(lost).save(tmp_path / "trace.json"))
    (row,) = found.audit().to_dict("records")
    assert row["events"] == len(lost) and "missing in replays of a graph" in row["what"]
    assert (found.summary()["bound_by"].item() == "unknown") == (len(lost) > 20)


def two_graphs():
    """A smaller one in each step, too."""
    trace = graphs()
    for step in range(10):
        replay(trace, 3000 * step + 2080, range(20), 40)
    return trace


def one_wait():
    """For one of two streams, which says nothing of the other."""
    trace = SyntheticTrace().launches(20, 0, 10, 30, every=1000).launches(20, 5, 500, 300, every=1000, stream=20)
    for number in range(20):  # before the kernels on stream 20
        trace.call(1000 * number + 40, 20, "cudaStreamSynchronize")
    return trace


def dependent_launches():
    """Each kernel begins 4 us before the one before it ends."""
    return SyntheticTrace().launches(20, 0, 300, 24, every=10, gpu_every=20)


SOUND = [two_streams, on_a_cpu, lambda: two_ranks()[0], busy, graphs, two_graphs, one_wait, dependent_launches]


@pytest.mark.parametrize("make", SOUND)
def test_nothing_is_found_in_a_sound_recording(load, make):
    trace = load(make())
    assert trace.audit().empty and "not sound" not in trace.summary()["why"].item()


def test_the_profilers_own_warnings_are_shown(load):
    trace = two_streams()
    trace.meta["WARNING"] = ["Kineto dropped 7 records"]
    assert load(trace).audit()["example"].tolist() == ["Kineto dropped 7 records"]
