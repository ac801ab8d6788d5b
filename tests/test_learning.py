"""Quality over a run, when it is good enough, and the studies that are shipped."""

import itertools
import statistics

import pandas
import pytest
import torch

import labkit
from labkit import course
from labkit.course import shipped
from labkit.data.images import read_picture, write_picture
from labkit.errors import LabkitError
from labkit.measure import load as load_table
from labkit.measure import quality as learning
from labkit.measure import save as save_table
from labkit.measure.roofline import step_flops
from labkit.training.checkpoints import save
from tools import studies
from tools.studies import Training


def test_a_study_says_what_was_seen_spent_and_reached(tiny, fruit, monkeypatch, tmp_path):
    clock = itertools.count()  # every look at it is a second later, so a step takes one
    monkeypatch.setattr(studies.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(studies, "EVERY", 2)
    monkeypatch.setattr(studies, "FIRST", 3)

    def make():
        return labkit.make_step(labkit.CycleGAN(**tiny().settings))

    trainings = {"one": Training(make, 4), "other": Training(make, 2), "later": Training(make, 2, first=make)}
    monkeypatch.setitem(studies.STUDIES, "two", (2, trainings))
    studies.learn("two", fruit, tmp_path)
    curves = load_table(tmp_path / "quality" / "two.json")
    looks = [("one", 2), ("one", 4), ("other", 2), ("later", 5)]
    expected = [(name, seed, done) for seed in (0, 1) for name, done in looks]
    assert list(curves[["name", "seed", "images"]].itertuples(index=False, name=None)) == expected
    assert curves["seconds"].tolist() == curves["images"].tolist(), "a second for each step, none for looking"
    step = make()
    assert curves["flops"][0] == 2 * step_flops(step, (torch.zeros(1, 3, 32, 32),) * 2)
    scores = curves[["fg", "bg", "changed"]]
    assert scores.iloc[0].equals(scores.iloc[2]), "one seed, the same run"
    assert not scores.iloc[0].equals(scores.iloc[4]), "another seed, another run"
    torch.manual_seed(0)
    model = make().model
    labkit.fit(labkit.make_step(model), fruit, 4, seed=0)
    assert labkit.quality(model, fruit) == pytest.approx(scores.iloc[1].to_dict()), "looking changes nothing"
    assert read_picture(tmp_path / "quality" / "two" / "later.png").shape == (3, 3 * 32, 9 * 32)


def curve(name, seed, scores):
    """Looks after 100, 200... pictures, each 10 seconds, with these pairs of fg and bg."""
    rows = [
        {"name": name, "seed": seed, "images": 100 * i, "seconds": 10.0 * i, "flops": 1e12 * i, "fg": fg, "bg": bg}
        for i, (fg, bg) in enumerate(scores, start=1)
    ]
    return pandas.DataFrame(rows)


@pytest.fixture
def curves():
    table = pandas.concat(
        [
            curve("<A>", 0, [(9, 5), (8, 4), (10, 3), (9, 4), (7, 3)]),  # 200 is luck, 400 and 500 are two running
            curve("<A>", 1, [(9, 4), (9, 4), (12, 9), (7, 1), (7, 9)]),
            curve("B", 0, [(9, 4), (9, 4.1), (9, 4), (9.1, 4), (9, 4)]),  # never twice
            curve("B", 1, [(20, 20), (20, 20), (20, 20), (20, 20), (8, 2)]),  # a pass before does not come from <A>
        ],
        ignore_index=True,
    )
    table.attrs = {"stamp": {"device": "Imaginary", "torch": "2.11", "threads": 1, "data": "fruit", "size": 64}}
    return table


def test_two_passes_running_are_needed_and_failures_are_kept(curves):
    taken = labkit.time_to_quality(curves)
    assert taken.loc["<A>", "images"].tolist() == [500, 200] and taken.loc["<A>", "seconds"].tolist() == [50, 20]
    assert taken.loc["<A>", "flops"].tolist() == [5e12, 2e12]
    assert taken.loc["B"].isna().all(axis=None) and len(taken) == 4
    assert labkit.time_to_quality(curves, bg=4.1).loc[("B", 0), "images"] == 200


def test_the_best_look_is_the_one_whose_worse_share_is_least(curves):
    best = labkit.best_within(curves, 40)
    assert best.loc[("<A>", 0), "images"] == 200 and best.loc[("<A>", 1), "images"] == 400
    assert best.loc[("B", 0), "images"] == 100, "not 200, whose bg is over its goal, though its fg is no worse"
    with pytest.raises(LabkitError, match="seconds=5"):
        labkit.best_within(curves, 5)


def test_within_the_spread_is_a_median_no_worse_than_the_baselines_worst_seed():
    pairs = {
        "baseline": [(7, 3), (8, 2)],
        "at the edge": [(8, 3), (8, 3)],
        "worse in fg": [(8.2, 1), (8, 1)],
        "worse in bg": [(1, 3.2), (1, 3)],
        "better": [(1, 1), (1, 1)],
    }
    rows = [(name, seed, *pair) for name, scores in pairs.items() for seed, pair in enumerate(scores)]
    scores = pandas.DataFrame(rows, columns=["name", "seed", "fg", "bg"]).set_index(["name", "seed"])
    within = learning.within_spread(scores.assign(seconds=99), "baseline")
    assert within.to_dict() == dict(zip(pairs, [True, True, False, False, True], strict=True))


def test_figures_show_every_seed_and_say_which_failed(curves):
    figure = course.passes_figure(curves)
    assert [list(trace.x) for trace in figure.data] == [[50, 20], [35], []], "two runs of A, their median, none of B"
    assert [note.text for note in figure.layout.annotations] == ["2 of 2 never passed"]
    of_a, of_b = figure.layout.meta["text"].partition("<A>")[2].split(";")
    assert "35, 20 to 50" in of_a and "0 of 2" in of_a and "2 of 2" in of_b
    assert len({*figure.data[0].y}) == len(figure.data[0].x), "seeds that take as long must not hide one another"
    with pytest.raises(LabkitError, match="against"):
        course.passes_figure(curves, "epochs")


def test_learning_has_a_column_of_panels_for_each_name_with_every_seed_and_their_median(curves):
    figure = course.learning_figure(curves, "flops")
    assert [note.text for note in figure.layout.annotations] == ["&lt;A&gt;", "B", "TFLOP"]
    panels = {axis: [trace for trace in figure.data if trace.xaxis == axis] for axis in ("x", "x2", "x3", "x4")}
    assert len(figure.data) == sum(map(len, panels.values()))
    for lines in panels.values():
        names = [line.name for line in lines]
        assert names == [None, "seed 0", "seed 1", "median"], "first the other's median, in grey"
    _, first, second, median = panels["x"]  # fg of <A>; bg stands in x3
    assert list(first.x) == [1, 2, 3, 4, 5] and list(panels["x3"][1].y) == [5, 4, 3, 4, 3]
    assert list(median.y) == [statistics.median(pair) for pair in zip(first.y, second.y, strict=True)]


def test_a_tradeoff_shows_every_seed_over_its_cost_and_the_baselines_worst(curves):
    scores = curves.groupby(["name", "seed"])[["fg", "bg"]].mean()
    figure = course.tradeoff_figure(pandas.Series({"<A>": 2.0, "B": 1.0}), scores, "<A>", "seconds a step")
    seeds = [trace for trace in figure.data if trace.marker.symbol is None]
    assert [trace.name for trace in seeds if trace.showlegend] == ["&lt;A&gt;", "B"]
    assert [statistics.mean(trace.x) for trace in seeds] == pytest.approx([2, 2, 1, 1])
    assert all(len({*trace.x}) == len(trace.y) and max(trace.x) - min(trace.x) < 0.1 for trace in seeds), "side by side"
    assert list(seeds[0].y) == scores.loc["<A>", "fg"].tolist() and list(seeds[3].y) == scores.loc["B", "bg"].tolist()
    assert [band.y1 for band in figure.layout.shapes] == scores.loc["<A>"].max().tolist()
    words = figure.layout.meta["text"]
    assert f"<A>: 2, median fg {scores.loc['<A>', 'fg'].median():.1f} %" in words
    assert f"The worst seed of <A>: fg {scores.loc['<A>', 'fg'].max():.1f} %" in words


def test_a_study_is_read_as_it_was_written(curves, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    for read in (labkit.study, labkit.study_pictures):
        with pytest.raises(LabkitError, match="lighter"):
            read("lighter")
    save_table(curves, tmp_path / "quality" / "lighter.json")
    again = labkit.study("lighter")
    pandas.testing.assert_frame_equal(again, curves)
    assert again.attrs == curves.attrs
    pictures = torch.randint(256, (2, 9, 3, 4, 4), dtype=torch.uint8)
    grid = torch.cat([torch.cat([*row], dim=2) for row in pictures], dim=1)
    write_picture(grid, tmp_path / "quality" / "lighter" / "A.png")
    assert labkit.study_pictures("lighter")["A"].equal(pictures)


def test_the_widget_shows_what_each_weight_does(tmp_path, monkeypatch, fruit):
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    with pytest.raises(LabkitError, match="deviation"):
        labkit.deviation_models()
    for weight in (0.5, 10.0):
        model = labkit.DeviationGAN(4, 4, 1, lambda_deviation=weight)
        torch.nn.init.constant_(model.T_A.change.weight, 1 / weight)
        state = {"kind": model.kind, "settings": model.settings, "step": {"model": model.half().state_dict()}}
        save(state, tmp_path / "checkpoints" / f"deviation_{weight:g}")
    models = labkit.deviation_models()
    assert sorted(models) == [0.5, 10.0]
    slider, figure, words = course.deviation_widget(models, fruit.test_a[:3], fruit.test_b[:3]).children
    assert slider.value == 10.0
    before, title = figure.figure.data[0].source, figure.figure.layout.title.text
    slider.value = 0.5
    assert figure.figure.data[0].source != before and figure.figure.layout.title.text != title
    assert "lambda_deviation 0.5" in words.value
