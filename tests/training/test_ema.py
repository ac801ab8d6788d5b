"""The moving average of the weights: what it is, that a resumed run has the same, and who uses it."""

import pytest
import torch

import labkit
from labkit.errors import LabkitError
from labkit.training.callbacks import sample

# A network with batch norm gives nearly one colour before its statistics have settled.
pytestmark = pytest.mark.filterwarnings("ignore::labkit.training.callbacks.CollapseWarning")


@pytest.fixture
def train(tiny, fruit, tmp_path):
    def run(folder, steps, ema=0.9, callbacks=()):
        step = labkit.make_step(tiny(norm="batch"))
        return labkit.fit(step, fruit, steps, checkpoint=tmp_path / folder, ema=ema, callbacks=callbacks)

    return run


def weights(model):
    return torch.cat([weight.detach().double().flatten() for weight in model.parameters()])


def test_the_average_keeps_less_of_early_steps_and_never_more_than_asked(train):
    class Weights(labkit.Callback):
        def on_start(self, run):
            self.mean = weights(run.model)

        def on_step(self, run):
            keep = min(0.3, (1 + run.done) / (10 + run.done))  # 2/11, 3/12, then 0.3
            self.mean = keep * self.mean + (1 - keep) * weights(run.model)

    expected = Weights()
    run = train("run", 5, ema=0.3, callbacks=[expected])
    assert torch.allclose(weights(run.average), expected.mean, rtol=0, atol=1e-6)
    assert not torch.allclose(weights(run.average), weights(run.model), rtol=0, atol=1e-6)


def test_statistics_of_batch_norm_are_the_model_s_own(train):
    run = train("run", 2)
    statistics = zip(run.average.buffers(), run.model.buffers(), strict=True)
    assert all(torch.equal(average, own) for average, own in statistics)


def test_a_resumed_run_has_the_same_average_to_the_bit(train):
    train("stopped", 2)
    assert torch.equal(weights(train("stopped", 4).average), weights(train("whole", 4).average))


def test_what_translates_has_the_average_and_training_starts_from_the_weights(train, tiny, tmp_path):
    run = train("run", 2)
    assert torch.equal(weights(labkit.load_model(tmp_path / "run")), weights(run.average))
    started = tiny(norm="batch")
    labkit.init_from(started, tmp_path / "run")
    assert torch.equal(weights(started), weights(run.model))


def test_samples_are_drawn_with_the_average(train, fruit):
    run = train("run", 2)
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.fill_(float("nan"))
    of_average = sample(run, fruit)
    run.average = None
    assert not torch.equal(of_average, sample(run, fruit))


def test_without_it_a_checkpoint_holds_one_set_of_weights(train, tmp_path):
    train("run", 1, ema=0)
    assert "average" not in torch.load(tmp_path / "run" / "checkpoint.pt")


def test_another_average_is_not_resumed(train):
    train("run", 1)
    with pytest.raises(LabkitError, match="ema=0.9 there, 0.5 here"):
        train("run", 2, ema=0.5)


def test_an_average_that_would_never_move_is_refused(train):
    with pytest.raises(LabkitError, match="ema=1.0"):
        train("run", 1, ema=1.0)
