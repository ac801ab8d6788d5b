"""Recordings of a processor alone: where a step's time goes, and what that is worth."""

import re

import pytest
from synthetic_trace import SyntheticTrace, on_the_host, steps_on_the_host

import labtrace
from labtrace import TraceError

STEP = ("ProfilerStep#3", 0, 100)


def cores(busy, worked, waited=None, threads=1, of=1):
    """The stamp of a process that kept so many cores busy; its thread waited for one, which Linux tells, so long."""
    waits = {} if waited is None else {"thread_waited": waited}
    return {"threads": threads, "cores": of, "cores_busy": busy, "thread_worked": worked} | waits


@pytest.fixture
def step_of_100(load):
    """A step of 100 us: 60 in a convolution with a copy of 10, 20 loading data, 10 in the optimiser, 10 in none."""
    loading = ("enumerate(DataLoader)#_Iter.__next__", 0, 20), ("aten::stack", 5, 10)
    network = ("aten::conv2d", 20, 60), ("aten::mkldnn_convolution", 25, 50), ("aten::copy_", 30, 10)
    optimiser = ("Optimizer.step#Adam.step", 80, 15), ("aten::mul", 82, 10)
    after_the_step = ("aten::mul", 150, 900)
    return load(on_the_host(STEP, *loading, *network, *optimiser, after_the_step))


def test_each_instant_of_a_step_has_one_kind(step_of_100):
    table = step_of_100.processor().set_index("kind")
    expected = {"convolutions": 50, "data loading": 20, "copies": 10, "optimiser": 10, "Python and dispatch": 10}
    assert table["us"].to_dict() == expected and table["us_per_step"].to_dict() == expected
    row = table.loc["convolutions"]  # what it is worth, by Amdahl's law
    assert row["times_faster_at_half"] == pytest.approx(1 / 0.75) and row["times_faster_at_most"] == pytest.approx(2)
    assert row["most_of_it"] == "aten::mkldnn_convolution"


def test_of_a_step_that_was_cut_the_recorded_part_counts(load):
    until_the_profiler_has_stopped = ("Optimizer.step#LBFGS.step", 0, 9000)
    trace = on_the_host(STEP, until_the_profiler_has_stopped, ("aten::mm", 0, 100), labkit={"whole_steps": 0})
    row = load(trace).summary().iloc[0]
    assert row["wall_us"] == 100 and row["why"].startswith("It took 0.1 ms.")


def test_the_verdict_names_the_kind_its_worth_and_what_to_try(step_of_100):
    row = step_of_100.summary().iloc[0]
    assert row["bound_by"] == row["first_remedy"] == "convolutions" and row["wall_us"] == 100
    assert row["verdict"].startswith(
        "The processor spends 50% of the time on convolutions, mostly aten::mkldnn_convolution. "
        "In half the time, a step would be 1.33x as fast. Try bf16"
    )
    assert row["why"].startswith("A step takes 0.1 ms. Then come 20% data loading, 10%")


@pytest.mark.parametrize(("number", "advice"), [("float", "bf16 autocast"), ("c10::BFloat16", "torch.compile")])
def test_16_bits_are_no_advice_where_they_are_used_already(load, number, advice):
    shapes = {"Input Dims": [[1, 8, 10, 10], [16, 8, 3, 3]], "Input type": [number] * 2}
    trace = SyntheticTrace().operator("aten::mkldnn_convolution", 0, 90, **shapes).operator("aten::mul", 90, 10)
    verdict = load(trace).summary().iloc[0]
    assert verdict["first_remedy"] == "convolutions" and f"Try {advice}" in verdict["verdict"]


def test_a_second_kind_of_half_the_size_leaves_no_one_cause(load):
    trace = on_the_host(STEP, ("aten::addmm", 0, 40), ("aten::mul", 40, 60))
    assert load(trace).summary()["bound_by"].tolist() == ["several"]


BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"
OPTIMISER = "Optimizer.step#Adam.step"
TIMES = {
    "an optimiser that runs the step itself counts only after the backward pass": (
        [STEP, (OPTIMISER, 0, 100), ("aten::addmm", 0, 30), (BACKWARD, 30, 50), ("aten::mm", 30, 50),
         ("aten::mul", 80, 20)],
        {"matrix products": 80, "optimiser": 20},
    ),
    "a long stretch without an operator is the script's own work": (
        [("ProfilerStep#3", 0, 8000), ("aten::mul", 1000, 1000), (OPTIMISER, 6000, 2000)],
        {"work outside of PyTorch": 4000, "Python and dispatch": 1000, "pointwise and other": 1000, "optimiser": 2000},
    ),
    "without steps the whole recording counts": (
        [("aten::mul", 10, 30), ("aten::mkldnn_rnn_layer_backward", 70, 30)],
        {"matrix products": 30, "pointwise and other": 30, "Python and dispatch": 30},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "times"), TIMES.values(), ids=TIMES)
def test_the_time_is_divided_by_kind(load, events, times):
    table = load(on_the_host(*events)).processor().set_index("kind")
    assert table["us"].to_dict() == times
    assert table["us_per_step"].isna().all() == (not events[0][0].startswith("ProfilerStep"))


KINDS = [
    ("matrix products", "AddmmBackward0 aten::baddbmm aten::mkldnn_linear"),
    ("convolutions", "autograd::engine::evaluate_function:ConvolutionBackward0 aten::mkldnn_convolution"),
    ("pointwise and other", "aten::normal_ aten::upsample_bilinear2d UpsampleLinear1DBackward0"),
]


@pytest.mark.parametrize(("kind", "names"), KINDS)
def test_a_kind_is_told_by_the_operator_s_own_name_forward_or_backward(load, kind, names):
    trace = SyntheticTrace()
    for place, name in enumerate(names.split()):
        trace.operator(name, 100 * place, 100)
    assert load(trace).processor()["kind"].tolist() == [kind]


STALLS = [
    ([4, 7], "aten::mul", 0.0, "matrix products"),
    ([1, 4, 7], "aten::mul", 0.0, "pointwise and other"),
    ([4, 7], "", 0.5, "matrix products"),  # others had the cores
    ([4, 7], "", 0.0, "work outside of PyTorch"),  # a script that sleeps, or saves
]


@pytest.mark.parametrize(("stalls", "name", "waited", "first"), STALLS)
def test_what_stalls_now_and_then_decides_nothing(load, stalls, name, waited, first):
    """In 10 steps a product of 1 ms, and an operator or none for 200 us or, in some steps, for 20 ms."""
    each = [20_000 if number in stalls else 200 for number in range(10)]
    steps = [(1000 + us, [("aten::mm", 0, 1000), *[(name, 1000, us)] * bool(name)]) for us in each]
    row = load(steps_on_the_host(*steps, labkit=cores(0.9 - waited, 0.9 - waited, waited))).summary().squeeze()
    left_out = first == "matrix products"
    assert row["first_remedy"] == first and row["wall_us"] == (12_000 if left_out else 10_000 + sum(each))
    assert bool(re.search("Left out: 2 stalls, such as in .+, 77% of the time.", row["why"])) == left_out


WORKERS = [(1, 4000, "more DataLoader workers."), (3.9, 4000, "pict"), (1, 0, "less")]


@pytest.mark.parametrize(("busy", "us", "advice"), WORKERS)
def test_workers_are_advised_where_a_loader_is_and_cores_are_free(load, busy, us, advice):
    events = ("ProfilerStep#3", 0, 5000), ("enumerate(DataLoader)#_Iter.__next__", 0, us), ("aten::mm", 4500, 500)
    verdict = load(on_the_host(*events, labkit={"threads": 4, "cores": 4, "cores_busy": busy})).summary()["verdict"][0]
    assert f"Try {advice}" in verdict and ("workers" in verdict) == ("workers" in advice)


def in_steps(walls, least=500, waits="", **meta):
    """Steps that take so long: a matrix product, but in steps of at least `least` nothing, or a range of this name."""
    inside = [[("aten::mm", 0, us)] if us < least else [(waits, 0, us)] if waits else [] for us in walls]
    return steps_on_the_host(*zip(walls, inside, strict=True), **meta)


EVERY = "enumerate(DataLoader)#_Iter.__next__"
WALLS = [  # of the steps; the range that the long ones wait in; how many came once and decide nothing
    ([100, 100, 900, 100, 100], "", "1 of 5 steps, 69% of the recorded time"),
    ([5000, 900, *[100] * 8], "", "2 of 10 steps, 88% of the recorded time"),
    ([100, 100, 100, 100, 3000] * 2, "", ""),  # as with five workers, or a script that sleeps in every fifth step
    ([890, 240, 240, 810, 210, 330, 910, 290, 240, 970], "", ""),  # only the last is over three times the median
    ([*[100] * 8, 3000, 3000], "", ""),  # a stock of batches is used up
    ([*[100] * 4, 3000, *[100] * 5], EVERY, ""),  # as with eight workers
]


@pytest.mark.parametrize(("walls", "waits", "left_out"), WALLS)
def test_long_steps_count_unless_they_came_once(load, walls, waits, left_out):
    trace = load(in_steps(walls, waits=waits))
    row, table = trace.summary().squeeze(), trace.processor()
    counted = [us for us in walls if us == 100 or not left_out]
    mean = sum(counted) / len(counted)
    assert row["wall_us"] == table["us"].sum() == sum(counted) and table["us_per_step"].sum() == pytest.approx(mean)
    assert row["why"].startswith(f"A step takes {mean / 1e3:.1f} ms")
    assert f". Left out: {left_out}." in row["why"] if left_out else "Left out" not in row["why"]
    assert (" on average, but 0." in row["why"]) == (mean > 1.5 * sorted(counted)[len(counted) // 2])
    assert (row["first_remedy"] == table["kind"][0]) and (table["kind"][0] == "matrix products") == bool(left_out)


def test_a_process_that_slept_in_a_step_that_was_left_out_shared_no_core(load):
    walls = [*[1000] * 5, 91_000, *[1000] * 4]
    row = load(in_steps(walls, least=2000, labkit=cores(0.09, 0.09))).summary().squeeze()
    assert "Left out: 1 of 10 steps, 91% of the recorded time." in row["why"]
    assert row["why"].endswith("(torch.get_num_threads() is 1).") and row["verdict"].startswith("The processor spends")


TAKEN = "% of the time, other programs, its own workers or a container's limit had its cores: record again without. The"


CORES = [
    (1, [1.0, 1.0], 500, 5000, "The", " OMP_NUM_THREADS=4 lets operators use all of them."),
    (4, [3.9, 1.0, 0.0], 500, 5000, "The", ""),
    (1, [1.0, 1.0], 50, 5000, "The", ""),  # so short that threads would bring nothing
    (1, [0.5, 0.5], 500, 5000, f"For 50{TAKEN}", ""),  # operators do not sleep
    (1, [0.6, 0.6, 0.4], 500, 5000, f"For 40{TAKEN}", ""),
    (1, [0.1, 0.1, 0.0], 500, 500, "For 90% .* script sleeps, .* no other process uses the cores.* 10.00x", ""),
    (1, [0.1, 0.1], 500, 500, "For 90% .* script sleeps, .*, or other programs have the cores", ""),
    (1, [0.3, 0.3, 0.7], 500, 500, f"For 70{TAKEN} processor spends 90% of the time on work outside", ""),
    (1, [0.9, 0.9, 0.1], 500, 500, "The processor spends 90% of the time on work outside", ""),
]


@pytest.mark.parametrize(("threads", "measured", "us", "until", "verdict", "advice"), CORES)
def test_cores_that_it_had_and_could_have_had_are_named(load, threads, measured, us, until, verdict, advice):
    operators = [("aten::mm", begin, us) for begin in range(0, until, us)]
    stamp = cores(*measured, threads=threads, of=4)
    row = load(on_the_host(("ProfilerStep#3", 0, 5000), *operators, labkit=stamp)).summary().squeeze()
    assert re.match(verdict, row["verdict"])
    busy = f" kept {measured[0]} of 4 cores busy (torch.get_num_threads() is {threads})."
    assert row["why"].endswith(busy + advice)


def test_two_threads_do_not_count_an_instant_twice(load):
    trace = on_the_host(STEP, ("aten::mm", 0, 100)).operator("aten::mul", 50, 50, tid=9)
    assert load(trace).processor()["us"].sum() == 100


def test_a_recording_of_a_gpu_is_refused(two_streams):
    with pytest.raises(TraceError, match="temporal"):
        two_streams.processor()


@pytest.mark.parametrize("view", ["processor", "timeline"])
def test_it_is_drawn_by_kind(step_of_100, view):
    figure = labtrace.show.trace(step_of_100, view)
    assert {"convolutions", "optimiser"} <= {bar.name for bar in figure.data}


def test_shapes_give_the_rates_of_a_processor_s_operators(load):
    values = ["", "", "", "[0, 0]", "[1, 1]", "[1, 1]", "1"]
    dims = [[1, 8, 10, 10], [16, 8, 3, 3], [16], [], [], [], []]
    shapes = {"Input Dims": dims, "Input type": ["float"] * 3 + [""] * 4, "Concrete Inputs": values}
    trace = SyntheticTrace().operator("aten::conv2d", 0, 60, **shapes)
    row = load(trace.operator("aten::mkldnn_convolution", 5, 50, **shapes)).achieved().squeeze()
    assert row["name"] == "aten::mkldnn_convolution" and row["us"] == 50 and row["flops"] == 2 * 8 * 8 * 16 * 8 * 9
