"""A study of trainings measures each one's way to the goal, and the looks at it change nothing."""

import itertools

import pytest
import torch

import labkit
from benchmarks.authoring import studies
from benchmarks.authoring.studies import Training
from labkit.data.images import read_picture
from labkit.measure.roofline import step_flops
from labkit.measure.tables import read_table

pytestmark = pytest.mark.slow


def test_a_study_says_what_was_seen_spent_and_reached(tiny, fruit, monkeypatch, tmp_path):
    clock = itertools.count()  # every look at it is a second later, so a step takes one
    monkeypatch.setattr(studies.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(studies, "PICTURES_BETWEEN_LOOKS", 2)
    monkeypatch.setattr(studies, "AUTOENCODER_STEPS", 3)

    def make():
        return labkit.make_step(labkit.CycleGAN(**tiny().settings))

    trainings = {"one": Training(make, 4), "other": Training(make, 2), "later": Training(make, 2, first=make)}
    monkeypatch.setitem(studies.STUDIES, "two", (2, trainings))
    studies.learn("two", fruit, tmp_path)
    curves = read_table(tmp_path / "quality" / "two.json")
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
