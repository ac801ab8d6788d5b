"""A loss with a custom name is returned, recorded and drawn like the others."""

import contextlib
import math

import pytest
import torch
from tiny import rows_of

import labkit
from labkit.training import checkpoints


class WithEdges(labkit.Step):
    def generators(self, batch):
        losses = super().generators(batch)
        losses["edge"] = 0.1 * (self.model.G_A(batch["real_a"]) - batch["real_a"]).abs().mean()
        return losses


def test_it_is_recorded_and_drawn(train, tiny, tmp_path):
    run = train(2, tmp_path, own=[WithEdges])
    assert list(run.losses) == [*tiny().loss_names, "edge"]
    written = [float(row["edge"]) for row in rows_of(tmp_path / "losses.csv")]
    assert written == run.losses["edge"] and min(written) > 0
    assert checkpoints.load(tmp_path)["losses"]["edge"].tolist() == run.losses["edge"]
    curve = next(trace for trace in labkit.show.loss_curves(run.losses, 2).data if trace.name == "edge")
    assert list(curve.y) == pytest.approx([run.losses["edge"][0], sum(run.losses["edge"]) / 2])


def test_a_run_may_begin_or_stop_to_have_it(train, tmp_path):
    train(2, tmp_path)
    train(3, tmp_path, own=[WithEdges])
    run = train(4, tmp_path, report_every=1)
    assert [math.isnan(loss) for loss in run.losses["edge"]] == [True, True, False, True]
    assert [row["edge"] != "" for row in rows_of(tmp_path / "losses.csv")] == [False, False, True, False]
    assert all(math.isfinite(loss) for loss in run.losses["G_A"]) and len(run.losses["G_A"]) == 4


CASES = {  # what becomes of the usual losses and of a translation, and what is said of it; "": it trains
    "no return": (lambda losses, fake: None, "None.*`return` missing"),
    "no losses": (lambda losses, fake: {}, "all"),
    "no names": (lambda losses, fake: fake.mean(), "'Tensor' object"),
    "no text": (lambda losses, fake: {**losses, 3: fake.mean()}, "3 of the generators"),
    "a name twice": (lambda losses, fake: {**losses, "D_A": fake.mean()}, "'D_A' of the generators"),
    "one a picture": (lambda losses, fake: {"edge": fake.mean((1, 2, 3))}, "'edge'"),
    "one in a list": (lambda losses, fake: {"edge": fake.mean().view(1)}, "'edge'"),
    "an item": (lambda losses, fake: {"edge": fake.mean().item()}, "'edge'"),
    "no gradient": (lambda losses, fake: {name: loss.detach() for name, loss in losses.items()}, "none of G_A"),
    "beside others": (lambda losses, fake: {**losses, "edge": fake.mean().detach()}, ""),
    "complex": (lambda losses, fake: {"edge": fake.mean() * 1j}, "'edge'"),
    "an integer": (lambda losses, fake: {**losses, "edge": torch.tensor(3)}, "'edge'"),
    "elsewhere": (lambda losses, fake: {**losses, "edge": fake.mean().to("meta")}, "'edge'"),
    "of 16 bits": (lambda losses, fake: {**losses, "edge": fake.mean().bfloat16()}, ""),
    "of 64 bits": (lambda losses, fake: {**losses, "edge": fake.mean().double()}, ""),
}


@pytest.mark.parametrize(("change", "message"), CASES.values(), ids=CASES)
def test_what_is_no_loss_is_named_in_the_first_step(train, tiny, change, message):
    class Changed(labkit.CycleGANStep):
        def generators(self, batch):
            return change(super().generators(batch), self.model.G_A(batch["real_a"]))

    with pytest.raises(labkit.LabkitError, match=f"losses of the .*{message}") if message else contextlib.nullcontext():
        assert math.isfinite(train(1, own=[Changed]).losses["edge"][0])
