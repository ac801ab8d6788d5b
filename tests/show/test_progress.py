"""Figures of a run that trains: its losses and its pictures."""

import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import torch
from PIL import Image

import labkit
from labkit import show


def test_rows_of_pictures_are_pngs_in_html_with_a_text_alternative():
    rows = {"a < b": torch.full((2, 3, 4, 4), 7, dtype=torch.uint8), "floats": torch.ones(2, 3, 4, 4)}
    page = show.picture_rows(rows, "Two rows", "2 rows").data
    pngs = re.findall('base64,([^"]*)', page)
    first, second = (np.asarray(Image.open(BytesIO(b64decode(png)))) for png in pngs)
    assert first.shape == second.shape == (2 * 8, 2 * 14, 3)
    assert (first[4:12, 4:12] == 7).all() and (second == 255).all()
    assert "a &lt; b" in page and 'aria-label="2 rows"' in page


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
