"""How good a run's translations are while it trains, in a file beside its losses."""

from __future__ import annotations

import csv

import torch

from labkit.data.batches import UnpairedData, to_float, to_uint8
from labkit.data.fruit import FruitData
from labkit.measure.distances import fid_and_kid
from labkit.measure.quality import GOAL, quality
from labkit.models.model import Model, run_network
from labkit.training.callbacks import Callback
from labkit.training.run import Run

FILE = "scores.csv"


class Scores(Callback):
    """Appends a row to ``scores.csv`` now and then, and at the end of the run; lower numbers are better.

    | column | meaning |
    |---|---|
    | step | the steps done |
    | shortfall, fg, bg | for fruit: see `labkit.quality`; shortfall: the larger of fg and bg as shares of the goals |
    | kid, fid | for photographs: from the translated test pictures of A to the test pictures of B |

    Args:
        data: the run's pictures.
        every: steps between two rows, a multiple of `report_every` of `labkit.fit`.
    """

    def __init__(self, data: UnpairedData, every: int):
        self.data, self.every = data, every

    def on_report(self, run: Run) -> None:
        if run.folder is None or run.done % self.every and run.done < run.steps:
            return
        row = {"step": run.done, **score(run.model, self.data)}
        with open(run.folder / FILE, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)

    def on_start(self, run: Run) -> None:
        if run.done >= run.steps:  # nothing is left to train; perhaps it was not scored before it was stopped
            self.on_report(run)


@torch.no_grad()
def score(model: Model, data: UnpairedData) -> dict[str, float]:
    """The numbers by which translations from A to B can be compared: lower is better.

    Raises:
        LabkitError: Inception, which photographs need, cannot be had.
    """
    if isinstance(data, FruitData):
        scores = quality(model, data)
        return {"shortfall": max(scores[name] / goal for name, goal in GOAL.items()), **{n: scores[n] for n in GOAL}}
    network, device = model.translator("AtoB"), next(model.parameters()).device
    pictures = (data.test_a[k][None].to(device) for k in range(len(data.test_a)))
    fakes = [to_uint8(run_network(network, to_float(picture)))[0].cpu() for picture in pictures]
    distances = fid_and_kid(data.test_b, fakes, device=device)
    return {"kid": distances.kid, "fid": distances.fid}
