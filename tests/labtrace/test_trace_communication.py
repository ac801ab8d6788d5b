"""Communication in traces: hidden or exposed, on a GPU and over gloo, and the rank that the others wait for."""

import re

import numpy as np
import pytest
from synthetic_trace import AUTOGRAD, SyntheticTrace, on_the_host, two_ranks
from test_views import bars, told

from labtrace import show
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.tables.communication import in_words, is_pipeline

GLOO_THREAD = 4250
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
MESSAGE = "Collective name", "Process Group Name", "Seq"


def on_gloo():
    """Two steps, 0-100 and 150-250; gloo in them 40-70 and 180-260, after them 300-400; PyTorch 10-60 and 150-190."""
    ranges = ("ProfilerStep#0", 0, 100), ("ProfilerStep#1", 150, 100), ("labkit: generators backward", 0, 100)
    in_each_other, handing_over = [("aten::conv2d", 10, 30), ("aten::mul", 20, 10)], ("c10d::allreduce_", 60, 5)
    in_no_step = ("aten::add", 300, 100)
    trace = on_the_host(*ranges, *in_each_other, handing_over, ("aten::add", 150, 40), in_no_step)
    trace.operator("aten::convolution_backward", 35, 25, tid=AUTOGRAD)
    for begin, duration in ((40, 30), (180, 80), (300, 100)):
        trace.event("user_annotation", "gloo:all_reduce", begin, duration, tid=GLOO_THREAD)
    return trace


def test_on_gpus_communication_is_hidden_under_kernels_or_exposed(ranks):
    fast, slow = ranks.communication().to_dict("records")
    assert fast["wall_us"] == 250 and fast["compute_us"] == 120
    assert fast["communication_us"] == 160 and fast["hidden_us"] == 30 and fast["exposed_us"] == 130
    assert fast["share_of_wall"] == pytest.approx(130 / 250)
    assert slow["communication_us"] == 60 and slow["hidden_us"] == 10 and slow["exposed_us"] == 50
    assert (fast["waited_us"], slow["waited_us"]) == (100, 0) and fast["straggler"] == slow["straggler"] == 1
    assert fast["sending_us"] == slow["sending_us"] == 10 + 50


def test_no_microsecond_is_communication_and_waiting_at_once(ranks):
    with pytest.warns(ReplayWarning):
        costs = ranks.remedies().query("rank == 0").set_index("cause")["us"]
    assert 0 < costs["communication"] <= 60 and 0 < costs["waiting for other ranks"] <= 100
    assert ranks.summary()["cost_of_communication"][0] > costs["communication"] / 250, "with the waits"


def in_collectives(rank, *collectives, name=NCCL):
    """A rank that is in collectives: the call, begin, duration and stream of each and, if it is known, its message."""
    trace = SyntheticTrace(rank=rank)
    for call, begin, duration, stream, *message in collectives:
        trace.launch(call, begin, duration, name=name, stream=stream)
        trace.events[-1]["args"] |= dict(zip(MESSAGE, *message, strict=False)) if message else {}
    return trace


def test_a_folder_and_one_rank_of_it_say_who_waited_in_words(ranks, load):
    said = "Rank 1 is the straggler: it waited 0.0 ms in the collectives, and the other one 0.1 ms, 40% of its time."
    assert in_words(ranks.communication()) == said
    alone = load(two_ranks()[0]).communication()
    assert in_words(alone) == "" and alone["ranks"].item() == "1 of 1"
    trace = two_ranks()[1]
    trace.meta["distributedInfo"] = {"rank": 1, "world_size": 4}
    assert in_words(load(trace).communication()).startswith("Only 1 of 4 ranks: communication contains the waiting")


def of(begin, us, group, number):
    return begin - 5, begin, us, 7 + group, ("allreduce", f"{group}", number)


def ended(kept):
    """Three ranks that leave each of five collectives together; of rank 1 only these were recorded."""
    ends, work = (100, 230, 320, 470, 560), [(60, range(5)), (50, kept), (10, range(5))]
    return [[(ends[place] - us - 9, ends[place] - us, us, 7) for place in places] for us, places in work]


NAN, ONE_LACKS = float("nan"), {"straggler": [2] * 3, "waited_us": [200, 160, 0], "came_last": [0, 0, 4]}
COLLECTIVES = {  # of each rank, and columns of the table
    "at the same time, no instant twice: the last 20 of one and 30 of the other are the sending": (
        [[(1, 10, 100, 20), (1, 10, 100, 21)], [(1, 90, 20, 20), (1, 80, 30, 21)]],
        {"communication_us": [100, 30], "sending_us": [30, 30], "waited_us": [70, 0], "straggler": [1, 1]},
    ),
    "rank 0 spends less time in them, but each rank is the last one once": (
        [[(0, 10, 10, 7), (100, 110, 50, 7)], [(0, 10, 30, 7), (100, 110, 45, 7)]],
        {"waited_us": [5, 20], "straggler": [0, 0]},
    ),
    "different ones have no straggler": (
        [[(at, at + 10, 5, 7) for at in own] for own in ((0, 100, 230, 500), (0, 30, 60, 90, 800))],
        {"waited_us": [NAN, NAN], "straggler": [NAN, NAN]},
    ),
    "one rank lacks the first": (ended([1, 2, 3, 4]), ONE_LACKS),
    "one rank lacks the last": (ended([0, 1, 2, 3]), ONE_LACKS),
    "one rank lacks one between them": (ended([0, 1, 3, 4]), ONE_LACKS | {"collectives": [4, 4, 4]}),
    "by group and number: rank 0 is in a group with each other one, its second with rank 2 comes first": (
        [[of(10, 40, 1, 3), of(20, 30, 2, 8), of(60, 5, 2, 7), of(100, 10, 1, 4)], [of(40, 10, 1, 3)],
         [of(30, 20, 2, 8), of(80, 15, 2, 7)]],
        {"collectives": [3, 1, 2], "came_last": [1, 1, 1], "waited_us": [20, 0, 10]},
    ),
    "of two that came at the same time none came last": (
        [[(0, 10, 30, 7), (50, 60, 9 + rank, 7)] for rank in range(3)], {"came_last": [1, 0, 0]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ranks", "columns"), COLLECTIVES.values(), ids=COLLECTIVES)
def test_who_waited_for_whom_in_collectives(load, ranks, columns):
    table = load(*(in_collectives(rank, *own) for rank, own in enumerate(ranks))).communication()
    for name, expected in columns.items():
        assert table[name].tolist() == pytest.approx(expected, nan_ok=True), name
    assert ("cannot be matched" in in_words(table)) == table["waited_us"].isna().all()


# Of both steps, in which the last range continues after its step, and that is not the step's; and of the first.
GLOO = [(range(2), [200, 90, 100, 30, 70]), (range(1), [100, 50, 30, 20, 10])]


@pytest.mark.parametrize(("steps", "us"), GLOO)
def test_on_a_cpu_it_is_gloo_s_ranges_in_the_steps(load, steps, us):
    row = load(on_gloo()).steps(0, steps[-1]).communication().iloc[0]
    assert row[["wall_us", "compute_us", "communication_us", "hidden_us", "exposed_us"]].tolist() == us
    assert np.isnan(row["straggler"]) and np.isnan(row["waited_us"])


ADVICE = [(0, "Try larger buckets"), (70, "mostly to wait for other ranks. In half")]


@pytest.mark.parametrize(("late", "advice"), ADVICE)
def test_on_a_cpu_a_rank_that_waits_for_others_is_told_so(load, late, advice):
    traces = []
    for number, joins in enumerate((20, 20 + late)):
        handing_over = ("c10d::allreduce_", joins, 110 - joins)
        traces.append(on_the_host(("ProfilerStep#0", 0, 110), ("aten::mm", 0, joins), handing_over, rank=number))
        traces[-1].event("user_annotation", "gloo:all_reduce", joins, 110 - joins, tid=GLOO_THREAD)
    assert advice in load(*traces).summary()["verdict"][0]


def test_without_steps_the_whole_recording_counts(load):
    gloo = ("user_annotation", "gloo:all_reduce", 40, 60)
    row = load(on_the_host(("aten::add", 0, 50)).event(*gloo, tid=GLOO_THREAD)).communication().iloc[0]
    assert row[["wall_us", "compute_us", "exposed_us"]].tolist() == [100, 50, 50]


def test_what_cannot_be_known_is_not_a_number(load, on_a_cpu, one_kernel):
    for alone in (on_a_cpu, one_kernel):
        assert alone.communication()["communication_us"].tolist() == [0], "a process by itself has nobody to talk to"
    trace = on_gloo()
    trace.events = [event for event in trace.events if not event["name"].startswith("gloo")]
    trace.meta["distributedInfo"]["world_size"] = 2
    row = load(trace).communication().iloc[0]
    assert row[["communication_us", "hidden_us", "exposed_us", "share_of_wall"]].isna().all() and row["wall_us"] == 200


STAGES = [("send", "7", 1)], [("recv", "7", 1), ("send", "7", 1)], [("recv", "7", 1)]
PIPELINES = [(STAGES, True, True), ([[()] * 2, [()] * 4, [()] * 2], True, False), ([[()] * 2] * 3, False, False)]


@pytest.mark.parametrize(("messages", "pipeline", "alone"), PIPELINES)
def test_stages_that_send_to_each_other_are_a_pipeline_with_bubbles(load, messages, pipeline, alone):
    """The last is an all-to-all. Without the messages' names only different numbers tell, and one file has none."""
    times = [[(100 * n, 100 * n + 5, 60, 7, one) for n, one in enumerate(sent)] for sent in messages]
    folder = load(*(in_collectives(rank, *own, name="ncclDevKernel_SendRecv()") for rank, own in enumerate(times)))
    table = folder.communication()
    words = r"Each rank is a stage of a pipeline: for [\d% to]+ of the time .* \(bubbles\)"
    assert (table["pipeline"] == pipeline).all() and bool(re.match(words, in_words(table))) == pipeline
    assert table["waited_us"].isna().all() == pipeline and table["straggler"].isna().all()
    assert is_pipeline([folder.ranks[1]]) == alone


def test_the_view_divides_each_rank_s_time_and_marks_the_straggler(ranks):
    figure = show.trace({"run": ranks}, "communication")
    shown = bars(figure)
    parts = {name: x for (name, place), x in shown.items() if place == "run, rank 0"}
    assert parts == pytest.approx({"its own work and pauses": 90, "sent": 60, "waited for other ranks": 100})
    assert figure.layout.barmode == "stack" and ("sent", "run, rank 1<br><b>straggler</b>") in shown
    row = told(figure)[0]
    assert row["exposed µs"] == "130.0" and row["share of wall"] == "52.0%" and row["straggler"] == "1"


def test_the_view_draws_a_cpu_beside_a_gpu(load, ranks):
    figure = show.trace({"gloo": load(on_gloo()), "GPUs": ranks}, "communication")
    shown = {name: x for (name, y), x in bars(figure).items() if y == "gloo"}
    assert shown == {"its own work and pauses": 100, "sent": 100, "waited for other ranks": 0}
    assert told(figure)[0]["waited µs"] == "n/a" and told(figure)[0]["straggler"] == "n/a"
