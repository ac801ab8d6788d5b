"""Figures of a run that trains: its losses, its pictures, and a film strip that grows."""

import torch

import labkit
from labkit import show


def test_a_film_strip_gets_a_row_for_each_look_with_the_translations_of_that_moment(tiny, fruit, capsys):
    apples = labkit.to_float(fruit.test_a[:3])
    strip = show.FilmStrip(apples)
    run = labkit.fit(labkit.make_step(tiny()), fruit, 4, report_every=2, callbacks=[strip])
    assert list(strip.rows) == ["test pictures", "after 2 steps", "after 4 steps"]
    assert torch.equal(strip.rows["after 4 steps"], labkit.models.run_network(run.model.G_A, apples))
    assert not torch.equal(strip.rows["after 2 steps"], strip.rows["after 4 steps"])
    assert "Figure" in capsys.readouterr().out, "shown while it trains"


def test_losses_are_drawn_as_the_mean_of_the_last_25_steps():
    figure = show.loss_curves({"G_A": [1.0] * 25 + [3.0] * 25, "cycle_B": [2.0, 4.0] * 25}, steps=100)
    adversarial, cycle = figure.data
    assert adversarial.y[24] == 1 and adversarial.y[49] == 3 and adversarial.y[37] == (12 * 1 + 13 * 3) / 25
    assert list(cycle.y[:2]) == [2, 3] and list(cycle.x) == list(range(1, 51))
    assert figure.layout.xaxis.range == (0, 100) and "G_A 3.00" in figure.layout.meta["text"]


def test_losses_that_grow_are_drawn_into_the_same_figure(tiny, fruit):
    live = show.LiveLosses(4)
    labkit.fit(labkit.make_step(tiny()), fruit, 4, report_every=2, callbacks=[live])
    assert len(live.figure.figure.data) == 8 and len(live.figure.figure.data[0].y) == 4
