"""Steps side by side: the verdicts, what is never measured as 1.00, the file, the figure, and the choice."""

import functools
import gc
import json
import math
import re
import weakref

import pandas
import pytest
import torch
from test_compare_catches import LeavesOut, NotANumber, OnlyFloat32
from tiny import two_layers

import labkit
from labkit import show
from labkit.errors import LabkitError
from labkit.measure import compare as comparing
from labkit.measure.tables import read_table, write_table
from labkit.measure.timing import interval, ratios
from labkit.show.comparisons import comparison_report

one_rate = functools.cache(comparing.matmul_rate)


@pytest.fixture(autouse=True)
def peak_measured_once(monkeypatch):
    """Measures the device's rate in the first comparison only."""
    monkeypatch.setattr(comparing, "matmul_rate", one_rate)


class Clock:
    """Seconds that pass only when a step says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def taking(self, *seconds):
        """A class for `make_step`: each call takes the next of `seconds`, over and over."""
        clock = self

        class Takes:
            calls = 0

            def __call__(self, real_a, real_b):
                clock.now += seconds[self.calls % len(seconds)]
                type(self).calls += 1
                return super().__call__(real_a, real_b)

        return Takes


@pytest.fixture
def small(tiny):
    """A function that makes a CycleGAN of a few layers."""
    return functools.partial(tiny, generator=two_layers())


@pytest.fixture
def compared(small, batch):
    """A function that compares stacks by name with a baseline of 1 second; keywords are classes or names."""

    def run(clock=None, model=small, size=16, baseline=(1.0,), rounds=6, limit_s=60.0, **stacks):
        clock = clock or Clock()
        stacks = {"baseline": [clock.taking(*baseline)], **stacks}
        steps = {name: lambda stack=stack: labkit.make_step(model(), *stack) for name, stack in stacks.items()}
        return labkit.compare(steps, batch(2, size), rounds=rounds, warmup=1, clock=clock, limit_s=limit_s)

    return run


@pytest.mark.slow
def test_faster_slower_and_no_difference_are_told_from_noise(compared):
    clock = Clock()
    stacks = {"fast": [0.5], "slow": [2.0], "same": [1.0], "now and then": [0.5, 2.0, 1.0]}
    table = compared(clock, **{name: [clock.taking(*seconds)] for name, seconds in stacks.items()})
    verdicts = ["baseline", "noise", "faster", "slower", "no difference", "no difference"]
    assert table["verdict"].tolist() == verdicts
    assert table.attrs["stamp"]["model"] == "CycleGAN" and table.attrs["stamp"]["ngf"] == 4
    fast = table.loc["fast", ["median_s", "times_faster", "times_faster_low", "images_per_s"]]
    assert fast.tolist() == [0.5, 2, 2, 4]
    assert table.loc["baseline again", "times_faster"] == 1
    assert table["peak_bytes"].isna().all() or torch.cuda.is_available()
    peak = table.attrs["stamp"]["peak_flop_per_s"]  # measured, so the division rounds as it may
    assert (table["share_of_peak"] * peak).tolist() == pytest.approx(table["flop_per_s"].tolist())


INTERVALS = [((1.02, 1.1), "no difference"), ((1.25, 1.3), "faster"), ((0.7, 0.8), "slower")]


@pytest.mark.parametrize(("between", "verdict"), INTERVALS)
def test_noise_reaches_as_far_above_1_as_below_whichever_baseline_was_the_first(between, verdict):
    for noise in ((0.82, 1.01), (1 / 1.01, 1 / 0.82)):
        assert comparing.speed_verdict(1.0, between, noise)[0] == verdict


@pytest.mark.parametrize(("noise", "gain"), [(0.03, 1.1), (0.12, 1.2), (0.03, 1.0)])
def test_a_gain_is_found_or_named_as_one_that_noise_may_hide(noise, gain):
    generator, said = torch.Generator().manual_seed(0), []
    for _ in range(300):
        baseline, again, step = torch.exp(noise * torch.randn(3, 10, generator=generator)).tolist()
        between, to_itself = interval(ratios(baseline, [one / gain for one in step])), interval(ratios(baseline, again))
        found = comparing.speed_verdict(1.0, between, to_itself)[0]
        said.append("hidden" if found == "no difference" and comparing.hidden(*between, to_itself) > gain else found)
    assert said.count("slower") == 0 and said.count("no difference") <= 300 * 0.025
    assert (said.count("faster") == 0) == (gain == 1.0)


def test_a_difference_within_the_baseline_s_own_noise_is_none(compared):
    clock, uneven = Clock(), dict(baseline=[1.0, 1.3, 0.8, 1.1, 1.5], rounds=9, limit_s=0)
    row = compared(clock, **uneven, faster=[clock.taking(0.95)]).loc["faster"]
    assert row["verdict"] == "no difference" and row["why"].startswith(f"none above {row['times_faster_high']:.2f}: ")


def test_as_long_as_noise_may_hide_what_is_worth_knowing_there_are_more_rounds(compared):
    clock = Clock()
    wavering = clock.taking(*[1.0] * 6, *[0.8, 1.3] * 8, *[0.95] * 30)  # the first ones are not timed
    seconds = compared(clock, wavering=[wavering]).attrs["seconds"]
    assert {len(measured) for measured in seconds.values()} == {24}
    assert len(compared(clock, same=[clock.taking(1.0)]).attrs["seconds"]["same"]) == 6


def test_a_step_that_computes_something_else_is_not_equivalent_however_fast(compared):
    clock = Clock()
    row = compared(clock, other=[clock.taking(0.1), LeavesOut]).loc["other"]
    assert (row["verdict"], row["why"]) == ("not equivalent", "it leaves out cycle_A")


@pytest.mark.slow
def test_nothing_of_a_comparison_stays_in_memory(compared):
    """Without waiting for the garbage collector, which a GPU that runs out of memory does not ask."""
    made = []

    class Noted:
        def build(self, betas):
            made.append(weakref.ref(self.model))
            return super().build(betas)

    clock = Clock()
    gc.collect()
    gc.disable()
    try:
        compared(clock, other=[Noted, clock.taking(1.0)])
        assert made and not any(model() for model in made)
    finally:
        gc.enable()


@pytest.mark.slow
def test_16_bit_steps_are_equivalent_and_say_how_far_they_are(compared, tiny):
    clock = Clock()
    table = compared(clock, tiny, size=32, bf16=["bf16", clock.taking(0.5)])
    assert table.loc["bf16", "verdict"] == "faster"
    assert 1e-6 < table.loc["bf16", "loss_difference"] < 1e-2 and table.loc["bf16", "gradient_cosine"] < 1
    assert table.loc["baseline again", "loss_difference"] == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are CUDA streams here")
def test_what_cannot_act_here_is_inactive_and_has_no_numbers(compared):
    stacks = {"streams": ["streams"], "with another": ["bf16", "streams"], "graph": ["graph"]}
    table = compared(**stacks)
    for name in stacks:
        row = table.loc[name]
        assert row["verdict"] == "inactive" and "here" in row["why"]
        assert row.drop(["verdict", "why"]).isna().all()


def test_another_model_is_timed_and_not_held_to_the_baseline(small, batch):
    clock = Clock()
    steps = {
        "baseline": lambda: labkit.make_step(small(), clock.taking(1.0)),
        "narrow": lambda: labkit.make_step(small(ndf=2), clock.taking(0.25)),
    }
    row = labkit.compare(steps, batch(size=16), rounds=6, clock=clock).loc["narrow"]
    assert row["verdict"] == "another model" and row["times_faster"] == 4 and math.isnan(row["loss_difference"])


def test_comparing_leaves_the_random_numbers_alone(compared):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    compared()
    assert torch.equal(before, torch.get_rng_state())


class RaisesInARound:
    calls, at, error = 0, 6, ZeroDivisionError("division by zero")

    def __call__(self, real_a, real_b):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return super().__call__(real_a, real_b)


def test_what_fails_costs_its_own_row_only(compared):
    class Raises(RaisesInARound):
        at = 1

    class ReturnsNothing:
        def __call__(self, real_a, real_b):
            super().__call__(real_a, real_b)

    class NoMemory(RaisesInARound):
        error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 35 GiB.")

    clock = Clock()
    stacks = {"fails": Raises, "nothing": ReturnsNothing, "later": RaisesInARound, "hungry": NoMemory}
    table = compared(clock, **{name: [fails] for name, fails in stacks.items()}, fast=[clock.taking(0.5)])
    assert table["verdict"].tolist() == ["baseline", "noise", *["does not run"] * 3, "out of memory", "faster"]
    why = table["why"]
    assert re.search(r"'fails' fails \(ZeroDivisionError: .* by zero; .*test_compare.py, line \d+\)", why["fails"])
    assert "returns its losses by name" in why["nothing"] and "ZeroDivisionError" in why["later"]
    assert math.isnan(table.loc["later", "median_s"]) and table.loc["fast", "times_faster"] == 2
    assert table.attrs["seconds"].keys() == {"baseline", "baseline again", "fast"}


class NoMemoryLater(RaisesInARound):
    at, error = 11, torch.OutOfMemoryError("CUDA out of memory.")  # after three updates and seven rounds


LEFT_OUT = [
    (NoMemoryLater, "did not suffice for another look after the timing$"),
    (OnlyFloat32, r"; float64 could not be tried \(.*TypeError: this kernel knows float32 only"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("own", "why"), LEFT_OUT)
def test_a_look_that_could_not_be_taken_costs_no_verdict_and_is_said(compared, own, why):
    clock = Clock()
    row = compared(clock, step=[own, clock.taking(0.5)]).loc["step"]
    assert row["verdict"] == "faster" and re.search(why, row["why"])


class SecondDoesNotFit:
    first = None

    def build(self, betas):
        SecondDoesNotFit.first = SecondDoesNotFit.first or self.model
        return super().build(betas)

    def losses(self, player, batch):
        if self.model is not SecondDoesNotFit.first:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 35 GiB.")
        return super().losses(player, batch)


def baseline(own):
    return lambda small: {"baseline": lambda: labkit.make_step(small(), own)}


# Functions of one that makes a model: they give the steps.
BAD_STEPS = [
    (lambda small: {}, 6, "steps: give functions that make a step and its model, by name"),
    (lambda small: [print], 6, "steps: give functions that make a step and its model, by name"),
    (lambda small: {"baseline": lambda: None}, 5, "rounds=5"),
    (lambda small: {"baseline": 3}, 6, "steps: give functions"),
    (lambda small: {"baseline": lambda: "step"}, 6, "makes a str: it should return a step"),
    (lambda small: {"baseline": labkit.make_step(small())}, 6, "steps: give functions that make a step"),
    (lambda small: {"baseline": functools.partial(labkit.make_step, small())}, 6, "two steps share one model"),
    (baseline(RaisesInARound), 10, "baseline( again)?, the baseline, does not run: .*ZeroDivisionError"),
    (baseline(type("No", (), {"__call__": print})), 6, "the baseline, does not run: step 'baseline' fails"),
    (baseline(NotANumber), 6, "the baseline: D_A is not a finite number"),
    (baseline(SecondDoesNotFit), 6, "baseline again, the baseline, does not run: CUDA out of memory"),
]


@pytest.mark.parametrize(("steps", "rounds", "message"), BAD_STEPS)
def test_bad_arguments_and_a_baseline_that_does_not_run_twice_are_named(small, batch, steps, rounds, message):
    with pytest.raises(LabkitError, match=message):
        labkit.compare(steps(small), batch(), rounds)


def test_the_interval_of_a_median_holds_it_often_enough():
    assert interval([5, 1, 4, 2, 3, 6]) == (1, 6) and interval(list(range(10))) == (1, 8)
    random = torch.Generator().manual_seed(0)
    draws = torch.randn(2000, 15, generator=random)
    inside = [low <= 0 <= high for low, high in map(interval, draws.tolist())]
    assert sum(inside) / 2000 >= 0.95
    with pytest.raises(LabkitError, match="5 values are too few"):
        interval([1.0] * 5)


@pytest.fixture(scope="module")
def table():
    """A comparison on a device that does not exist."""
    numbers = dict(times_faster=2.0, times_faster_low=1.9, times_faster_high=2.2, median_s=0.5, peak_bytes=2e9)
    noise = dict(times_faster=1.0, times_faster_low=0.97, times_faster_high=1.02, median_s=1.0, peak_bytes=4e9)
    rows = {
        "baseline": {"verdict": "baseline", "why": "what", **noise},
        "baseline again": {"verdict": "noise", "why": "itself", **noise},
        "<fast>": {"verdict": "faster", "why": "2 times faster", **numbers},
        "streams": {"verdict": "inactive", "why": "streams: no CUDA"},
        "wrong": {"verdict": "not equivalent", "why": "it leaves out idt_A", **numbers},
    }
    table = pandas.DataFrame.from_dict(rows, orient="index")
    for column in ("images_per_s", "flop_per_s", "share_of_peak", "loss_difference", "gradient_cosine"):
        table[column] = math.nan
    stamp = {"device": "Imaginary GPU", "torch": "2.11", "threads": 1, "batch_shape": [1, 3, 64, 64]}
    table.attrs = {"stamp": stamp, "seconds": {"baseline": [1.0]}}
    return table


def test_a_comparison_is_kept_with_its_stamp_and_every_measurement(table, tmp_path):
    again = read_table(write_table(table, tmp_path / "new" / "compare.json"))
    pandas.testing.assert_frame_equal(again, table, check_dtype=False)
    assert again.attrs == table.attrs
    assert json.loads((tmp_path / "new" / "compare.json").read_text())["rows"][3]["times_faster"] is None


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": 2}'])
def test_a_file_without_a_comparison_is_refused(tmp_path, content):
    path = tmp_path / "compare.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LabkitError, match="compare.json: no measurements"):
        read_table(path)


def test_the_figure_draws_what_was_measured_and_says_why_the_rest_was_not(table):
    figure = show.comparison_figure(table)
    (points,) = figure.data
    assert list(points.y) == ["baseline", "&lt;fast&gt;"] and list(points.x) == [1, 2]
    assert list(points.error_x.array) == pytest.approx([0.02, 0.2])
    notes = [note.text for note in figure.layout.annotations]
    assert len(notes) == 2 and "inactive: streams: no CUDA" in notes[0] and "it leaves out idt_A" in notes[1]
    (band,) = figure.layout.shapes
    assert (band.x0, band.x1) == pytest.approx((0.97, 1 / 0.97))
    assert "Imaginary GPU" in figure.layout.title.text
    assert "&lt;fast&gt;</td>" in figure.layout.meta["table"] and "it leaves out idt_A" in figure.layout.meta["table"]


def test_where_nothing_was_measured_the_reasons_still_have_their_places(table):
    figure = show.comparison_figure(table.assign(peak_bytes=float("nan")), "peak_bytes")
    assert figure.layout.yaxis.type == "category"  # else Plotly looks for numbers in the names of the annotations
    assert {note.y for note in figure.layout.annotations} <= set(figure.layout.yaxis.categoryarray)
    with pytest.raises(LabkitError, match="measure"):
        show.comparison_figure(table, "speed")


def test_the_report_opens_without_a_network(table, tmp_path):
    page = comparison_report(table, tmp_path / "new" / "compare.html").read_text()
    assert "<script src" not in page and "<link" not in page and page.count("<details>") == 3
    assert "Imaginary GPU" in page and "&lt;fast&gt;" in page and "<fast>" not in page
