"""When a run is good enough, and the studies that are shipped."""

import pandas
import pytest
import torch
from made_up import curve

import labcourse
import labkit
from labcourse import shipped
from labkit.data.images import write_picture
from labkit.errors import LabkitError
from labkit.measure import quality as learning
from labkit.measure.tables import write_table
from labkit.training.checkpoints import write_checkpoint


@pytest.fixture
def curves():
    each = [
        curve("<A>", 0, [(9, 5), (8, 4), (10, 3), (9, 4), (7, 3)]),  # 200 is luck, 400 and 500 are two running
        curve("<A>", 1, [(9, 4), (9, 4), (12, 9), (7, 1), (7, 9)]),
        curve("B", 0, [(9, 4), (9, 4.1), (9, 4), (9.1, 4), (9, 4)]),  # never twice
        curve("B", 1, [(20, 20), (20, 20), (20, 20), (20, 20), (8, 2)]),  # a pass before does not come from <A>
    ]
    table = pandas.concat(each, ignore_index=True)
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


def test_a_study_is_read_as_it_was_written(curves, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    for read in (labcourse.study, labcourse.study_pictures):
        with pytest.raises(LabkitError, match="lighter"):
            read("lighter")
    write_table(curves, tmp_path / "quality" / "lighter.json")
    again = labcourse.study("lighter")
    pandas.testing.assert_frame_equal(again, curves)
    assert again.attrs == curves.attrs
    pictures = torch.randint(256, (2, 9, 3, 4, 4), dtype=torch.uint8)
    grid = torch.cat([torch.cat([*row], dim=2) for row in pictures], dim=1)
    write_picture(grid, tmp_path / "quality" / "lighter" / "A.png")
    assert labcourse.study_pictures("lighter")["A"].equal(pictures)


def test_models_of_the_study_are_loaded_by_the_weight_of_their_deviation(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    with pytest.raises(LabkitError, match="deviation"):
        labcourse.deviation_models()
    for weight in (0.5, 10.0):
        model = labkit.DeviationGAN(4, 4, 1, lambda_deviation=weight)
        state = {"kind": model.kind, "settings": model.settings, "step": {"model": model.half().state_dict()}}
        write_checkpoint(state, tmp_path / "checkpoints" / f"deviation_{weight:g}")
    models = labcourse.deviation_models()
    assert {weight: model.settings["lambda_deviation"] for weight, model in models.items()} == {0.5: 0.5, 10.0: 10.0}
