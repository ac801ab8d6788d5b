"""The moving average of the weights: what it is, that a resumed run has the same, and who uses it."""

import pytest
import torch

import labkit
from labkit.errors import LabkitError
from labkit.training.callbacks import sample

# A network with batch norm gives nearly one colour before its statistics have settled.
pytestmark = pytest.mark.filterwarnings("ignore::labkit.training.callbacks.CollapseWarning")


@pytest.fixture
def averaged(train, tiny, tmp_path):
    return lambda folder, steps, *callbacks, ema=0.9: train(
        steps, tmp_path / folder, *callbacks, model=tiny(norm="batch"), ema=ema
    )


def weights(model):
    return torch.cat([weight.detach().double().flatten() for weight in model.parameters()])


def test_the_average_keeps_less_of_early_steps_and_never_more_than_asked(averaged):
    class Weights(labkit.Callback):
        def on_start(self, run):
            self.mean = weights(run.model)

        def on_step(self, run):
            keep = min(0.3, (1 + run.done) / (10 + run.done))  # 2/11, 3/12, then 0.3
            self.mean = keep * self.mean + (1 - keep) * weights(run.model)

    expected = Weights()
    run = averaged("run", 5, expected, ema=0.3)
    assert torch.allclose(weights(run.average), expected.mean, rtol=0, atol=1e-6)
    assert not torch.allclose(weights(run.average), weights(run.model), rtol=0, atol=1e-6)


def test_statistics_of_batch_norm_are_the_model_s_own(averaged):
    run = averaged("run", 2)
    statistics = zip(run.average.buffers(), run.model.buffers(), strict=True)
    assert all(torch.equal(average, own) for average, own in statistics)


def test_what_translates_has_the_average_and_training_starts_from_the_weights(averaged, tiny, tmp_path):
    run = averaged("run", 2)
    assert torch.equal(weights(labkit.load_model(tmp_path / "run")), weights(run.average))
    started = tiny(norm="batch")
    labkit.init_from(started, tmp_path / "run")
    assert torch.equal(weights(started), weights(run.model))


def test_samples_are_drawn_with_the_average(averaged, fruit):
    run = averaged("run", 2)
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.fill_(float("nan"))
    of_average = sample(run, fruit)
    run.average = None
    assert not torch.equal(of_average, sample(run, fruit))


def test_without_it_a_checkpoint_holds_one_set_of_weights(averaged, tmp_path):
    averaged("run", 1, ema=0)
    assert "average" not in torch.load(tmp_path / "run" / "checkpoint.pt")


def test_another_average_is_not_resumed_and_one_that_would_never_move_is_refused(averaged):
    averaged("run", 1)
    for folder, ema, message in (("run", 0.5, "ema=0.9 there, 0.5 here"), ("new", 1.0, "ema=1.0")):
        with pytest.raises(LabkitError, match=message):
            averaged(folder, 2, ema=ema)
