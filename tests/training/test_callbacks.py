"""The seam `callbacks=`: who is called when, and that an error in one loses nothing."""

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

import labkit
from labkit.training import callbacks, checkpoints
from labkit.training.run import Run


class Diary(labkit.Callback):
    """Notes each call with the step it came at; raises an error in the method and at the step that `fails` names."""

    def __init__(self, fails=None, error=ValueError):
        self.calls, self.fails, self.error = [], fails, error

    def note(self, name, run, *more):
        self.calls.append((name, run.done, *more))
        if self.fails == (name, run.done):
            raise self.error("no network")

    def on_start(self, run):
        self.note("start", run)

    def on_report(self, run):
        self.note("report", run, len(run.losses["G_A"]))

    def on_sample(self, run, grid):
        self.note("sample", run, tuple(grid.shape))

    def on_save(self, run, path):
        self.note("save", run, path.name)

    def on_end(self, run):
        self.note("end", run)


def test_callbacks_hear_of_everything_in_its_order(train, tmp_path):
    diary = Diary()
    train(3, tmp_path, diary, report_every=2, sample_every=2)
    grid = (3, 4 * 34 + 2, 4 * 34 + 2)
    told = [("start", 0), ("report", 2, 2), ("sample", 2, grid), ("report", 3, 3), ("sample", 3, grid)]
    assert diary.calls == [*told, ("save", 3, checkpoints.FILE), ("end", 3)]
    again = Diary()
    train(4, tmp_path, again)
    assert again.calls[0] == ("start", 3)


class Patience(labkit.Callback):
    """Stops a run after some steps, those before it resumed included."""

    def __init__(self, steps, odd_after=99):
        self.steps, self.done, self.odd_after = steps, 0, odd_after

    def on_step(self, run):
        self.done += 1
        if self.done >= self.steps:
            run.stop()

    def state_dict(self):
        return {"done": Path("late") if self.done >= self.odd_after else self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


def test_a_callback_stops_the_run_and_its_state_goes_on_with_it(train, tmp_path, monkeypatch):
    finished = []
    monkeypatch.setattr(labkit.Step, "finish", lambda step: finished.append(1))
    assert train(2, tmp_path).done == 2  # a checkpoint without states
    train(4, tmp_path, Patience(4), Patience(9))
    first, second = Patience(4), Patience(9)
    run = train(9, tmp_path, first, second, schedule=labkit.linear_schedule(9, 9))
    assert (run.done, run.saved, len(run.losses["G_A"]), first.done, second.done) == (6, 6, 6, 4, 4)
    assert train(9, tmp_path, Patience(4)).done == 7, "it stops again, after a step"
    assert train(8, tmp_path).done == 8, "without the callback, which is not forgotten"
    assert train(12, tmp_path, Patience(7)).done == 10 and len(finished) == 6


def test_a_state_that_no_checkpoint_can_hold_any_more_is_an_error_and_nothing_is_lost(train, tmp_path):
    with pytest.raises(labkit.LabkitError, match=r"^Patience 1\['done'\]: no checkpoint gives back <class 'pathlib"):
        train(3, tmp_path, Patience(9, odd_after=2))
    assert train(4, tmp_path, Patience(1)).done == 4


@pytest.mark.parametrize("name", ["report", "sample"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_a_callback_goes_on_after_the_run_was_saved(train, tmp_path, name, error):
    diary, late = Diary((name, 3), error), Diary()
    with pytest.raises(error, match="no network"):
        train(9, tmp_path, diary, late, report_every=3, sample_every=3)
    assert diary.calls[-1] == ("end", 3) == late.calls[-1], "so that it can close what it opened"
    state = checkpoints.load(tmp_path)
    assert state["done"] == len(state["losses"]["G_A"]) == 3
    resumed, whole = train(5, tmp_path), train(5, None)
    assert resumed.losses == whole.losses
    assert all(map(torch.equal, resumed.model.parameters(), whole.model.parameters()))


@pytest.mark.parametrize(("name", "at", "heard"), [("start", 0, 2), ("save", 4, 5), ("end", 4, 5)])
def test_an_error_before_the_first_step_or_after_the_last_is_no_secret(train, tmp_path, name, at, heard):
    diary = Diary((name, at))
    with pytest.raises(ValueError, match="no network"):
        train(4, tmp_path, diary)
    assert diary.calls[-1] == ("end", at) and len(diary.calls) == heard
    assert (tmp_path / checkpoints.FILE).exists() == (at == 4)


def test_an_error_in_on_end_does_not_hide_the_first(train):
    first = Diary(("report", 1), lambda text: RuntimeError("first"))
    with pytest.raises(RuntimeError, match="first"):
        train(4, None, first, Diary(("end", 1)), report_every=1)


REFUSED = [
    *((wrong, "give functions of the run, or objects of a labkit.Callback") for wrong in (Diary, "print")),
    (7, "callbacks=7: give functions"),
    (type("Own", (labkit.Callback,), {"on_raport": print})(), "Own overrides nothing of.*did you mean 'on_report'"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_what_is_no_callback_or_overrides_nothing_is_refused(train, wrong, message):
    with pytest.raises(labkit.LabkitError, match=message):
        train(1, None, wrong)


@pytest.mark.parametrize("schedule", [0.5, [1.0], LambdaLR, LambdaLR(SGD([torch.ones(1)], 1.0), float)])
def test_a_schedule_is_a_function(train, schedule):
    with pytest.raises(labkit.LabkitError, match="schedule=.*: .* Give a function of steps done"):
        train(1, None, schedule=schedule)


def test_without_a_folder_nothing_is_saved(fruit, tiny):
    diary = Diary()
    labkit.fit(labkit.make_step(tiny()), fruit, 1, callbacks=diary)  # one alone
    assert [call[0] for call in diary.calls] == ["start", "report", "sample", "end"]
    assert not Path("checkpoint.pt").exists()


LOSSES = [
    (0.05, 0.9, 200, 200, True),  # least squares
    (0.03, 9.0, 900, 1000, True),  # cross-entropy
    (0.08, 0.66, 400, 400, False),  # the strongest of healthy ones, at step 1500
    (0.05, 0.9, 199, 199, False),
    (0.05, 0.9, 9000, 9000, False),  # late
    (-0.4, 4.0, 400, 400, False),  # wgangp
    (0.05, math.nan, 400, 400, False),
]


@pytest.mark.parametrize(("judge", "generator", "steps", "done", "warns"), LOSSES)
def test_a_discriminator_that_has_won_early_is_told(judge, generator, steps, done, warns):
    losses = {"D_A": steps * [judge], "D_own": steps * [judge], "G_A": steps * [generator], "cycle_A": steps * [1.0]}
    with warnings.catch_warnings(record=True) as caught:
        callbacks.warn_of_discriminators(Run(step=None, steps=9999, data=None, done=done, losses=losses))
    assert [str(one.message).split(" has ")[0] for one in caught] == warns * [f"step {done}: for 200 steps D_A"]


def test_the_discriminators_are_looked_at_with_each_sample(train, monkeypatch):
    monkeypatch.setattr(callbacks, "SURE", 0)
    monkeypatch.setattr(callbacks, "JUDGED", 2)
    with pytest.warns(callbacks.DiscriminatorWarning, match="^step 2: for 2 steps D_B has told"):
        train(2, None)
