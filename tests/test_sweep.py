"""Sweeps: trials are runs as `labkit train` makes them, each is finished once, and no journal stops them for long."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sweeping
import torch
from killing import same
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

import labkit
from labkit.data.batches import UnpairedData
from labkit.errors import CheckpointError, DivergedError, LabkitError, TrainingError
from labkit.recipes import FRUIT
from labkit.sweeps import heartbeat, journal, space, worker
from labkit.training import checkpoints
from labkit.training.fit import fit

SPACE = {"lr": "1e-4:1e-3:log", "ngf": "4,5", "ndf": "4"}


@pytest.fixture(scope="module")
def data():
    """Four pictures to train on, and four scenes to measure by."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.data.fruit.TEST_SCENES", 4)
        return labkit.fruit(n=4, size=16)


@pytest.fixture
def start(data, tmp_path, monkeypatch):
    """A function that starts a worker in this process; it returns the table, and `start.said` is what was said."""
    monkeypatch.setattr(worker, "POLL", 0.05)

    def run(trials=2, **more):
        options = {"space": SPACE, "storage": tmp_path / "a.journal", "steps": 2, "device": "cpu", **more}
        options = {"pruner": "none", "say": run.said.append, **options}
        return labkit.sweep(options.pop("data", data), trials=trials, **options)

    run.said = []
    return run


def trained(data, folder, lr, ngf, steps):
    """The checkpoint of such a trial, as `labkit train` would make it."""
    torch.manual_seed(0)
    step = labkit.make_step(labkit.CycleGAN(**{**FRUIT.model, "ngf": ngf, "ndf": 4}), lr=float(lr))
    labkit.fit(step, data, steps, checkpoint=folder)
    return checkpoints.load(folder)


# ---- the search space


def test_ranges_and_choices_have_the_settings_types():
    parsed = space.parse(
        {"lr": "1e-4:1e-3:log", "ngf": "4:8", "lambda_identity": "0:1", "norm": "batch, none"}, "CycleGAN"
    )
    assert parsed["lr"] == space.Range(1e-4, 1e-3, log=True) and str(parsed["lr"]) == "0.0001:0.001:log"
    assert parsed["ngf"] == space.Range(4, 8) and isinstance(parsed["ngf"].low, int)
    assert isinstance(parsed["lambda_identity"].low, float)
    assert parsed["norm"] == space.Choices(("batch", "none"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "nothing to search.*--lr 1e-4:1e-3:log"),
        ({"ngff": "4,8"}, "setting='ngff' is unknown.*did you mean 'ngf'"),
        ({"lr": "1e-3:1e-4"}, "0.001 is not below 0.0001"),
        ({"lr": "0:1e-3:log"}, "begins above 0"),
        ({"lr": "1e-4:1e-3:lin"}, "is no range. Give LOW:HIGH"),
        ({"lr": "fast"}, "'fast' is not a number"),
        ({"lr": "nan,1"}, "'nan' is not a number"),
        ({"ngf": "4.5"}, "'4.5' is not a whole number"),
        ({"ngf": "4,,8"}, "'' is not a whole number"),
        ({"generator": "a:b"}, "generator is a name. Give choices"),
        ({"generator": "resnet_3block"}, "did you mean 'resnet_3blocks'"),
        ({"generator": "unet_128", "norm": "instance"}, "generator=unet_128: pictures of 16x16 pixels do not fit"),
        ({"lr": "-1,1e-4"}, "lr=-1.0: a learning rate is a positive number"),
        ({"batch_size": "0:2"}, "batch_size=0: at least 1"),
    ],
)
def test_a_wrong_search_space_is_refused_before_anything_is_written(start, tmp_path, wrong, message):
    with pytest.raises(LabkitError, match=message):
        start(space=wrong)
    assert not list(tmp_path.iterdir())


# ---- trials


def test_a_trial_is_the_run_that_train_makes(start, data, tmp_path):
    table = start(trials=2)
    assert list(table["state"]) == ["complete", "complete"] and list(table["value"]) == sorted(table["value"])
    best = table.iloc[0]
    assert best["value"] == max(best["fg"] / 9, best["bg"] / 4)
    mine = checkpoints.load(tmp_path / "a" / f"trial_{table.index[0]:04d}")
    assert best["folder"] == str(tmp_path / "a" / f"trial_{table.index[0]:04d}")
    assert same(mine, trained(data, tmp_path / "right", best["lr"], int(best["ngf"]), steps=2))
    assert sum("complete" in line and "fg" in line and "lr" in line for line in start.said) == 2


def test_a_later_start_may_ask_for_more_and_one_worker_alone_repeats_itself(start, tmp_path):
    first = start(trials=1)
    again = start(trials=1)
    assert again.equals(first) and len(start.said) == 1
    assert len(start(trials=2)) == 2
    settings = ["lr", "ngf", "value"]
    assert start(trials=2, storage=tmp_path / "b.journal")[settings].equals(start(trials=2)[settings])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"space": {**SPACE, "lr": "1e-4:1e-2:log"}}, "space: .*--lr 0.0001:0.001:log .*there, .*--lr 0.0001:0.01:log"),
        ({"steps": 5}, "steps: 2 there, 5 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"pruner": "median"}, "pruner: none there, median here"),
        ({"model": "DeviationGAN", "size": 24}, "model: CycleGAN there, DeviationGAN here"),
    ],
)
def test_another_sweep_in_the_journal_is_refused_with_the_difference(start, other, message):
    start(trials=1)
    other = dict(other)
    if size := other.pop("size", None):
        other["data"] = labkit.fruit(n=4, size=size)
    with pytest.raises(LabkitError, match=message):
        start(**other)


def test_data_without_a_truth_is_refused(start):
    with pytest.raises(LabkitError, match="only fruit has one.*labkit train"):
        start(data=UnpairedData("photos", 16, *4 * [torch.zeros(2, 3, 16, 16, dtype=torch.uint8)]))


def test_the_median_stops_a_hopeless_trial(start, monkeypatch):
    scores = iter([*[1.0] * 5 * 2, 2.0])  # two looks at each of five trials, and one at a worse one

    def measured(*_):
        return {"fg": 9 * (score := next(scores)), "bg": 4 * score, "changed": 0.0}

    monkeypatch.setattr(worker, "quality", measured)
    table = start(trials=6, pruner="median")
    assert table.loc[5, "state"] == "pruned" and table.index[-1] == 5
    assert "stopped at step 1" in start.said[-1]


@pytest.mark.parametrize("error", [TrainingError, DivergedError])
def test_a_trial_whose_settings_fail_does_not_stop_the_others(start, monkeypatch, error):
    def fails_once(*arguments, **options):
        monkeypatch.setattr(worker, "fit", fit)
        raise error("a loss is no longer a finite number")

    monkeypatch.setattr(worker, "fit", fails_once)
    table = start(trials=2)
    assert table.loc[0, "state"] == "failed" and "finite" in table.loc[0, "why"]
    assert table.loc[1, "state"] == "complete" and "trial 0 failed" in start.said[0]
    assert len(start(trials=2)) == 2


# ---- workers that die, and what they leave


class Killed(BaseException):
    pass


def dies(at, monkeypatch, how=Killed):
    """The next trial saves after every step, and is broken off after step `at`; a kill leaves the sign of life."""

    def broken(*arguments, callbacks, **options):
        def look(run):
            callbacks[0](run)
            if run.done == at + 1:
                raise how

        return fit(*arguments, callbacks=[look], **{**options, "save_minutes": 0})

    monkeypatch.setattr(worker, "fit", broken)
    if how is Killed:
        monkeypatch.setattr(heartbeat.Heartbeat, "__exit__", lambda self, *_: self.ended.set())


def test_a_dead_workers_trial_goes_on_from_its_checkpoint(start, data, tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        dies(2, patch)
        start(trials=1, steps=4, stale_seconds=1)
    folder = tmp_path / "a" / "trial_0000"
    assert checkpoints.load(folder)["done"] == 2 and heartbeat.read(folder) is not None
    assert labkit.sweeps.table(tmp_path / "a.journal").loc[0, "state"] == "running"
    started = time.monotonic()
    table = start(trials=1, steps=4, stale_seconds=1)
    assert time.monotonic() - started >= 1
    assert start.said[0].startswith("waits for trial 0 (process") and "takes up trial 0" in start.said[1]
    assert same(
        checkpoints.load(folder),
        trained(data, tmp_path / "right", table.loc[0, "lr"], int(table.loc[0, "ngf"]), steps=4),
    )
    told, last = sweeping.endings(tmp_path / "a.journal", 4)
    assert dict(told) == dict(last) == {0: 1}


def test_an_interrupted_trial_is_given_back_at_once(start, tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        dies(0, patch, KeyboardInterrupt)
        start(trials=1)
    assert heartbeat.read(tmp_path / "a" / "trial_0000") is None
    assert list(start(trials=1)["state"]) == ["complete"] and "takes up trial 0" in start.said[0]


def test_a_worker_that_was_silent_for_too_long_leaves_the_trial_to_the_other(start, tmp_path, monkeypatch):
    def taken_over(*arguments, **options):
        (tmp_path / "a" / "trial_0000" / heartbeat.FILE).write_text("another")
        monkeypatch.setattr(worker, "fit", fit)
        return fit(*arguments, **options)

    monkeypatch.setattr(worker, "fit", taken_over)
    monkeypatch.setattr(worker, "POLL", 0.2)
    table = start(trials=1, stale_seconds=1)  # the other one never beats, so that we take it back
    assert "was taken over" in start.said[0] and "waits" in start.said[1] and "takes up" in start.said[2]
    assert list(table["state"]) == ["complete"]
    assert sweeping.endings(tmp_path / "a.journal", 2)[0] == {0: 1}


def test_a_silent_worker_that_holds_the_lock_of_its_run_lives(tmp_path):
    code = (
        "import sys, pathlib; from labkit.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    watch = heartbeat.Watch(0.2)
    heartbeat.Heartbeat(tmp_path, 0.2)
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as stopped:
        stopped.stdout.readline()
        assert not watch.abandoned(tmp_path)
        time.sleep(0.3)
        assert not watch.abandoned(tmp_path)
        stopped.kill()
        stopped.wait()
        assert watch.abandoned(tmp_path)


def test_a_heart_beats(tmp_path):
    with heartbeat.Heartbeat(tmp_path, 0.6):
        watch, first = heartbeat.Watch(0.6), heartbeat.read(tmp_path)
        for _ in range(8):
            assert not watch.abandoned(tmp_path)
            time.sleep(0.1)
        assert heartbeat.read(tmp_path) != first
    assert heartbeat.read(tmp_path) is None and watch.abandoned(tmp_path)


def test_one_of_two_workers_is_killed_and_each_trial_is_finished_once(tmp_path):
    storage = tmp_path / "a.journal"
    left = sweeping.kill_some(storage, kills=1, trials=3, steps=8, seed=0, pause=0.2)
    told, last = sweeping.endings(storage, 8)
    assert left[0] is not None and told == last == dict.fromkeys(range(3), 1)
    assert "takes up trial" in storage.with_suffix(".said").read_text()


# ---- the journal


def test_half_a_line_is_cut_off_and_the_sweep_goes_on(start, tmp_path):
    start(trials=1)
    path = tmp_path / "a.journal"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker_id"')
    with pytest.warns(UserWarning, match="half a record of 24 bytes"):
        table = start(trials=2)
    assert path.read_bytes().startswith(whole + b"{") and list(table["state"]) == ["complete"] * 2


def test_a_lost_end_of_a_trial_is_found_again_in_its_folder(start, tmp_path):
    path = tmp_path / "a.journal"
    before = start(trials=1)
    path.write_bytes(path.read_bytes()[:-20])  # the record that finished the trial
    with pytest.warns(UserWarning, match="half a record"):
        after = start(trials=1)
    assert after.equals(before)


def test_half_a_line_that_another_worker_leaves_meanwhile_is_cut_off_too(start, tmp_path, monkeypatch):
    def leaves_half_a_line(*arguments, **options):
        with open(tmp_path / "a.journal", "ab") as file:
            file.write(b'{"op_code":6,')
        monkeypatch.setattr(worker, "fit", fit)
        return fit(*arguments, **options)

    monkeypatch.setattr(worker, "fit", leaves_half_a_line)
    with pytest.warns(UserWarning, match="half a record of 13 bytes"):
        start(trials=1)
    assert sweeping.endings(tmp_path / "a.journal", 2)[0] == {0: 1}


def test_optuna_by_itself_damages_a_journal_that_ends_in_half_a_line(tmp_path):
    """Why labkit cuts it off; if this fails, Optuna does so itself, and labkit need not."""
    path = tmp_path / "a.journal"
    path.write_bytes(b'{"op_code":0}\n{"op')
    backend = JournalFileBackend(str(path))
    assert list(backend.read_logs(0)) == [{"op_code": 0}]
    backend.append_logs([{"op_code": 1}, {"op_code": 2}])
    with pytest.raises(ValueError):
        list(backend.read_logs(0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"op_code":0}\n{"op_{"op_code":1}\n{"op_code":2}\n', "line 2 of 3 is damaged.*Use a copy"),
        (b"shopping: milk\nand bread\n", "no journal of a sweep, and stays as it is"),
        (b"shopping: milk", "no journal of a sweep, and stays as it is"),
    ],
)
def test_a_file_that_is_no_whole_journal_is_refused_and_stays(start, tmp_path, content, message):
    path = tmp_path / "a.journal"
    path.write_bytes(content)
    for work in (start, lambda: labkit.sweeps.table(path)):
        with pytest.raises(LabkitError, match=message):
            work()
    assert path.read_bytes() == content


def test_bad_places_for_a_journal_are_named(start, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.journal").mkdir()
    for storage, message in (
        (tmp_path / "a.db", "ends in .journal"),
        (tmp_path / "folder.journal", "this is a folder"),
        (tmp_path / "file" / "a.journal", "nothing can be written there"),
    ):
        with pytest.raises(LabkitError, match=message):
            start(storage=storage)
    with pytest.raises(LabkitError, match="there is no such journal"):
        labkit.sweeps.table(tmp_path / "b.journal")
    (tmp_path / "empty.journal").touch()
    with pytest.raises(LabkitError, match="no sweep has begun"):
        labkit.sweeps.table(tmp_path / "empty.journal")


def test_a_folder_of_an_unknown_trial_is_not_taken_for_ours(start, tmp_path):
    start(trials=1)
    (tmp_path / "a.journal").unlink()
    with pytest.raises(LabkitError, match="trial_0000 is there already.*Move the folder away"):
        start(trials=1)


@pytest.mark.parametrize("at", ["checkpoint", "journal"])
def test_on_a_full_disk_a_worker_ends_with_a_message_and_its_trial_goes_on_later(start, tmp_path, at):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = (
        "labkit.training.checkpoints.torch.save",
        "optuna.storages.journal._storage.JournalStorage.set_trial_intermediate_value",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where[at == "journal"], full)
        with pytest.raises(LabkitError, match="No space left on device.*Make room") as caught:
            start(trials=1)
    assert isinstance(caught.value, CheckpointError) == (at == "checkpoint")
    assert list(start(trials=1)["state"]) == ["complete"] and "takes up trial 0" in start.said[0]


def test_a_file_system_without_links_has_another_lock(start, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "symlink", refused)
    assert isinstance(journal.SharedLock(tmp_path / "lock").lock, JournalFileOpenLock)
    assert list(start(trials=1)["state"]) == ["complete"]


@pytest.mark.parametrize("links", [True, False])
def test_a_lock_that_a_killed_worker_left_is_broken(tmp_path, monkeypatch, links):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "BROKEN_AFTER", 3)
    monkeypatch.setattr(journal, "_has_links", lambda folder: links)
    (tmp_path / "out").mkdir()
    path = Path("out", "claims")
    journal.SharedLock(path).acquire()
    cpu, wall = time.process_time(), time.monotonic()
    with journal.SharedLock(path).held():
        assert 3 <= time.monotonic() - wall < 20 and time.process_time() - cpu < 1


def test_without_optuna_the_message_says_how_to_install_it(start, monkeypatch):
    monkeypatch.setattr(journal.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabkitError, match="pip install 'optuna>=4,<5'"):
        start()


# ---- the command, the table and the page


def test_the_command_sweeps_and_shows(call, tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.data.fruit.TEST_SCENES", 4)
    storage = ["--storage", tmp_path / "out" / "a.journal"]
    small = ["--size", "16", "--steps", "2", "--trials", "2", "--device", "cpu", "--generator", "resnet_3blocks"]
    status, out, err = call("sweep", "--lr", "1e-4:1e-3:log", "--ngf=4,5", "--ndf", "4", *small, *storage)
    assert status == 0 and out.count("complete: ") == 2 and "trial_0001" in out and "step/s" not in err
    page = tmp_path / "out" / "a" / "sweep.html"
    for figure in ("Optimization History", "Hyperparameter Importances", "Slice Plot", "Parallel Coordinate"):
        assert figure in page.read_text(encoding="utf-8")
    page.unlink()
    status, shown, _ = call("sweep", "--show", *storage)
    assert status == 0 and shown.strip() in out and page.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trails", "4"], "did you mean 'trials'"),
        (["--lr"], "lr: '' is not a number"),
        (["1e-4"], "'1e-4': an option is expected here"),
        (["--lr", "1e-4,1e-3", "--data", "photos"], "only fruit has one"),
        (["--lr", "1e-4,1e-3", "--model", "CycleGun"], "CycleGAN, DeviationGAN"),
        (["--lr", "1e-4,1e-3", "--pruner", "mean"], "pruner='mean' is unknown"),
        (["--show"], "there is no such journal"),
    ],
)
def test_the_command_says_in_one_line_what_it_cannot_do(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = call("sweep", *arguments)
    assert status == 1 and err.startswith("labkit: ") and message in err and "Traceback" not in err


def test_an_interrupted_command_ends_with_130_and_how_to_go_on(call, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("labkit.sweeps.sweep.sweep", interrupted)
    status, _, err = call("sweep", "--lr", "1e-4,1e-3", "--size", "16", "--storage", tmp_path / "a.journal")
    assert status == 130 and "run the same again" in err


def test_a_sweep_that_has_just_begun_can_be_shown(start, tmp_path, monkeypatch):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        dies(0, patch, KeyboardInterrupt)
        start(trials=1)
    assert labkit.show.sweep_figures(tmp_path / "a.journal") == {}
    assert "running" in labkit.show.sweep_report(tmp_path / "a.journal", tmp_path / "page.html").read_text()
