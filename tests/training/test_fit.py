"""The loop: reports, exact resuming, interrupts, and what stops or warns."""

import signal

import numpy as np
import pytest
import torch
from killing import same_weights
from PIL import Image
from tiny import TooMuch

import labkit
from labkit.errors import CheckpointError, TrainingError
from labkit.training import checkpoints
from labkit.training.callbacks import CollapseWarning


class RatesOfNumpy:
    def optimizer(self, weights, lr, betas):
        lr, betas = np.float32(lr), tuple(np.float64(beta) for beta in betas)
        return torch.optim.AdamW(weights, lr=lr, betas=betas, weight_decay=np.float32(0.01))


@pytest.mark.filterwarnings("ignore::labkit.training.callbacks.CollapseWarning")
@pytest.mark.parametrize(("real", "whole"), [(float, int), (np.float32, np.int64), (np.longdouble, np.uint8)])
def test_going_on_equals_never_having_stopped(train, tiny, tmp_path, real, whole):
    def go(steps, folder=None, **more):
        model = tiny(pool_size=whole(3), lambda_a=real(9.7), ngf=whole(4), norm=np.str_("instance"))
        if more:
            torch.nn.init.ones_(next(model.parameters()))  # whatever the fresh weights are, the checkpoint's count
            torch.manual_seed(99)
        options = dict(batch_size=whole(2), seed=whole(5), ema=real(0.75), report_every=4, **more)
        own = [] if real is float else [RatesOfNumpy]
        return train(steps, folder, model=model, own=own, schedule=lambda done: real(1 + np.cos(done / 9)), **options)

    whole, _, resumed = go(11), go(6, tmp_path), go(11, tmp_path, workers=1)
    assert same_weights(resumed.model, whole.model) and same_weights(labkit.load_model(tmp_path), whole.average)
    assert resumed.losses == whole.losses
    assert len(whole.losses["cycle_A"]) == whole.done == 11


def test_a_finished_run_is_left_as_it_is(train, tmp_path):
    first = train(2, tmp_path)
    before = (tmp_path / checkpoints.FILE).read_bytes()
    again = train(2, tmp_path)
    with pytest.raises(labkit.LabkitError, match="steps done=2 there, 1 here"):
        train(1, tmp_path)
    assert (tmp_path / checkpoints.FILE).read_bytes() == before
    assert same_weights(again.model, first.model)


@pytest.fixture
def in_the_foreground():
    """Signals do what they do in a terminal: under nohup, or in the background, two of them are ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("in_the_foreground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_finishes_the_step_saves_and_says_how_to_go_on(train, tmp_path, number):
    class Interrupted:
        def update(self, player):
            if player == "generators":
                signal.raise_signal(number)
            super().update(player)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=f"step 1 of 5; saved in {tmp_path}: run the same again") as stopped:
        train(5, tmp_path, own=[Interrupted])
    assert stopped.value.status == 128 + number
    assert signal.getsignal(signal.SIGINT) is before
    assert same_weights(train(5, tmp_path).model, train(5).model)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(train, tmp_path, bad):
    class Breaks:
        def losses(self, player, batch):
            losses = super().losses(player, batch)
            if self.optimizers["generators"].state and player == "generators":  # from the second step on
                losses["cycle_A"] = losses["cycle_A"] * bad
            return losses

    with pytest.raises(TrainingError, match="step 2: cycle_A is no longer a finite number.*kept in"):
        train(5, tmp_path, own=[Breaks], save_minutes=0)
    assert checkpoints.load(tmp_path)["done"] == 1
    assert all(weight.isfinite().all() for weight in labkit.load_model(tmp_path).parameters())


def test_sample_grids_show_pictures_above_their_translations(train, fruit, tmp_path):
    train(4, tmp_path, sample_every=2)
    names = sorted(path.name for path in (tmp_path / "samples").iterdir())
    assert names == ["000002.png", "000004.png"]
    with Image.open(tmp_path / "samples" / names[-1]) as grid:
        assert grid.size == (4 * 34 + 2, 4 * 34 + 2)
        first = Image.fromarray(fruit.test_a[0].permute(1, 2, 0).numpy())
        assert grid.crop((2, 2, 34, 34)).tobytes() == first.tobytes()


def test_a_generator_that_gives_one_picture_for_all_is_called_collapsed(train, tiny, tmp_path):
    model = tiny()
    with torch.no_grad():
        model.G_A.model[-2].weight.zero_()
    with pytest.warns(CollapseWarning, match="step 1: AtoB gives nearly the same picture"):
        train(1, tmp_path, model=model)


def test_a_sample_that_cannot_be_written_costs_no_training(train, tmp_path):
    (tmp_path / "samples" / "000002.png").mkdir(parents=True)
    with pytest.warns(UserWarning, match=r"step 2: .*000002.png cannot be written"):
        run = train(3, tmp_path, sample_every=2)
    assert run.done == 3 and checkpoints.load(tmp_path)["done"] == 3


def test_a_folder_that_is_renamed_stays_one_folder(train, tmp_path):
    def rename(run):
        if run.done == 2:
            run.folder.rename(tmp_path / "new")

    with pytest.raises(CheckpointError, match="old was renamed or removed.*continue from step 1"):
        train(1, tmp_path / "old")
        train(4, tmp_path / "old", rename, report_every=1)
    assert train(4, tmp_path / "new").losses == train(4).losses and not (tmp_path / "old").exists()


def test_an_error_of_a_step_keeps_the_checkpoint(train, tmp_path):
    train(2, tmp_path, batch_size=4)
    kept = (tmp_path / checkpoints.FILE).read_bytes()
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        train(3, tmp_path, own=[TooMuch], batch_size=4)
    assert (tmp_path / checkpoints.FILE).read_bytes() == kept
