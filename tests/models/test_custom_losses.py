"""A loss with a custom name is returned, recorded and drawn like the others."""

import csv
import math

import pytest

import labkit
from labkit.training import checkpoints


class WithEdges(labkit.Step):
    def generators(self, batch):
        losses = super().generators(batch)
        losses["edge"] = 0.1 * (batch["fake_b"] - batch["real_a"]).abs().mean()
        return losses


def rows(folder):
    with open(folder / "losses.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_it_is_recorded_and_drawn(train, tiny, tmp_path):
    run = train(2, tmp_path, own=[WithEdges])
    assert list(run.losses) == [*tiny().loss_names, "edge"]
    assert [float(row["edge"]) for row in rows(tmp_path)] == run.losses["edge"] and min(run.losses["edge"]) > 0
    assert checkpoints.load(tmp_path)["losses"]["edge"].tolist() == run.losses["edge"]
    curve = next(trace for trace in labkit.show.loss_curves(run.losses, 2).data if trace.name == "edge")
    assert list(curve.y) == pytest.approx([run.losses["edge"][0], sum(run.losses["edge"]) / 2])


def test_a_run_may_begin_or_stop_to_have_it(train, tmp_path):
    train(2, tmp_path)
    train(3, tmp_path, own=[WithEdges])
    run = train(4, tmp_path, report_every=1)
    assert [math.isnan(loss) for loss in run.losses["edge"]] == [True, True, False, True]
    assert [row["edge"] != "" for row in rows(tmp_path)] == [False, False, True, False]
    assert all(math.isfinite(loss) for loss in run.losses["G_A"]) and len(run.losses["G_A"]) == 4


class WithoutReturn:
    def generators(self, batch):
        super().generators(batch)


def test_a_method_without_its_return_is_named(train, tmp_path):
    with pytest.raises(labkit.LabkitError, match="losses of the generators are None: .* lack its `return`"):
        train(1, tmp_path, own=[WithoutReturn])
