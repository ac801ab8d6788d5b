"""Sweeps: each trial is a job that ends once, whatever is killed on the way, and a run as `labkit train` makes it."""

import os
import time
from pathlib import Path

import pytest
from killing import same
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import labkit
from labkit import sweeps
from labkit.commands.sweeping import divided
from labkit.errors import CheckpointError, LabkitError, TrainingError
from labkit.training import checkpoints

SPACE = {"x": "0.0:1.0"}


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    """A function that sweeps in `tmp_path`; `start.said` has the lines of the driver."""
    monkeypatch.setattr(sweeps, "POLL_SECONDS", 0.05)

    def run(objective, trials=2, **options):
        try:
            return labkit.sweep(objective, options.pop("space", SPACE), trials, tmp_path, **options)
        finally:
            run.said = capsys.readouterr().out.splitlines()

    return run


def counted(value=lambda x: x):
    """An objective that notes each of its calls in the trial's folder. Jobs get functions in functions by value."""

    def objective(folder, x):
        with open(folder / "calls", "a") as file:
            file.write("x")
        return value(x)

    return objective


# ---- the search space


RANGES = [
    ("1e-4:1e-3:log", FloatDistribution(1e-4, 1e-3, log=True)),
    ("4:8", IntDistribution(4, 8)),
    ("0.0:1", FloatDistribution(0, 1)),
    ("batch, none", CategoricalDistribution(["batch", "none"])),
    ("8,16", CategoricalDistribution([8, 16])),
    (IntDistribution(1, 3), IntDistribution(1, 3)),
]


@pytest.mark.parametrize(("given", "expected"), RANGES)
def test_ranges_are_of_whole_numbers_if_both_ends_are(given, expected):
    assert sweeps.distribution("setting", given) == expected


BAD_RANGES = [
    ("1e-3:1e-4", "`low <= high`"),
    ("0:1e-3:log", "low"),
    ("1e-4:1e-3:lin", "'lin' is not 'log'"),
    ("4:", "could not convert"),
]


@pytest.mark.parametrize(("given", "message"), BAD_RANGES)
def test_a_range_that_cannot_be_searched_is_refused(given, message):
    with pytest.raises(LabkitError, match=rf"setting='.*{message}.*Give LOW:HIGH"):
        sweeps.distribution("setting", given)


# ---- trials of a function


@pytest.mark.slow
def test_the_best_trial_comes_first_and_only_the_same_call_goes_on(start, tmp_path):
    table = start(counted(), trials=2)
    assert list(table["state"]) == ["complete"] * 2 and list(table["value"]) == sorted(table["x"])
    assert table.iloc[0]["folder"] == str(tmp_path / f"trial_{table.index[0]:04d}")
    assert len(start.said) == 2 and start(counted(), trials=2).equals(table) and not start.said
    assert len(start(counted(), trials=3)) == 3
    assert [Path(folder, "calls").read_text() for folder in sweeps.table(tmp_path)["folder"]] == ["x"] * 3
    with pytest.raises(LabkitError, match=r"another sweep: .*high=1.0.*, not .*high=2.0"):
        start(counted(), space={"x": "0.0:2.0"})


@pytest.mark.slow
def test_each_job_has_its_own_gpu_and_share_of_the_processors(start, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")

    def environment(folder, x):
        import os
        import time

        time.sleep(2)  # so that both run at the same time
        (folder / "seen").write_text(f"{os.environ['CUDA_VISIBLE_DEVICES']} {os.environ['OMP_NUM_THREADS']}")
        return x

    start(environment)
    seen = {(tmp_path / f"trial_000{k}" / "seen").read_text() for k in range(2)}
    assert seen == {f"{gpu} {max(1, (os.cpu_count() or 1) // 2)}" for gpu in (3, 5)}


@pytest.mark.slow
def test_a_killed_job_is_submitted_again_with_the_same_settings(start, tmp_path):
    def killed_once(folder, x):
        import os
        import signal

        with open(folder / "calls", "a") as file:
            file.write(f"{x} ")
        if len((folder / "calls").read_text().split()) < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    table = start(killed_once, trials=1)
    assert list(table["state"]) == ["complete"] and "killed, and is submitted again" in start.said[0]
    assert (tmp_path / "trial_0000" / "calls").read_text() == 2 * f"{table.loc[0, 'x']} "


@pytest.mark.slow
def test_the_result_of_another_trials_job_with_the_same_number_is_not_taken(start):
    def second_dies(folder, x):
        import os
        import shutil

        if folder.name == "trial_0001":
            for result in folder.parent.rglob("*_result.pkl"):
                shutil.copy(result, result.with_name(f"{os.environ['SUBMITIT_LOCAL_JOB_ID']}_0_result.pkl"))
            os._exit(137)
        return x

    table = start(second_dies, trials=2, at_once=1)
    assert list(table["state"]) == ["complete", "fail"] and "killed 3 times" in table.loc[1, "how"]


@pytest.mark.slow
def test_settings_that_fail_do_not_stop_the_others(start):
    def fails(x):
        raise TrainingError("a loss is no longer a finite number")

    table = start(counted(fails))
    assert list(table["state"]) == ["fail"] * 2 and "finite" in table.loc[0, "how"]


@pytest.mark.slow
def test_a_full_disk_stops_the_sweep_and_its_trial_goes_on_later(start, tmp_path):
    def full(folder, x):
        if (folder.parent / "room").exists():
            return x
        raise CheckpointError("No space left on device. Make room.")

    with pytest.raises(LabkitError, match="trial 0: .*No space left on device.*Run the same"):
        start(full, trials=1)
    (tmp_path / "room").touch()
    assert list(start(full, trials=1)["state"]) == ["complete"] and "trial 0 continues" in start.said[0]


@pytest.mark.slow
def test_a_driver_that_was_killed_leaves_its_jobs_to_the_next(start, tmp_path):
    def slow(folder, x):
        import time

        with open(folder / "calls", "a") as file:
            file.write("begin ")
            file.flush()
            (folder.parent / "begun").touch()
            time.sleep(3)
            file.write("end ")
        return x

    driver = os.fork()
    if driver == 0:
        start(slow, trials=1)
        os._exit(0)
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    os.kill(driver, 9)
    os.waitpid(driver, 0)
    table = start(slow, trials=1)
    assert list(table["state"]) == ["complete"] and "its driver was stopped" in start.said[0]
    calls = (tmp_path / "trial_0000" / "calls").read_text()
    assert calls == "begin end begin end ", "the second job waits until the first has ended"


def test_slurm_needs_its_commands(start, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(LabkitError, match="no sbatch"):
        start(counted(), cluster="slurm")


# ---- trials of labkit train, the command and the table

SMALL = "--size 16 --steps 2 --generator resnet_3blocks --ndf 4 --device cpu --workers 0 --no-tensorboard".split()


@pytest.mark.slow
def test_the_command_trains_as_labkit_train_does_and_shows(call, tmp_path, monkeypatch):
    out = tmp_path / "sweep"
    status, said, error = call("sweep", "--lr", "1e-4:1e-3:log", "--ngf=4,5", *SMALL, "--trials", "1", "--out", out)
    assert status == 0 and said.count(" complete") == 2, error  # a line, and a row
    trial = sweeps.table(out).iloc[0]
    monkeypatch.setattr(labkit, "fruit", labkit.fruit.func)  # all pictures, as in the job
    found = ["--lr", trial["lr"], "--ngf", trial["ngf"]]
    assert call("train", "--out", tmp_path / "again", *SMALL, *found, "--quiet")[0] == 0
    assert same(checkpoints.load(tmp_path / "again"), checkpoints.load(trial["folder"]))
    rows = Path(trial["folder"], "scores.csv").read_text().split()
    assert rows[0] == "step,shortfall,fg,bg" and float(rows[-1].split(",")[1]) == trial["value"]
    status, shown, _ = call("sweep", "--show", "--out", out)
    assert status == 0 and shown.strip() in said


def test_a_learning_rate_for_each_player_is_no_list_of_choices():
    rates = ["--lr", "generators=2e-4,discriminators=1e-4"]
    assert divided([*rates, "--ngf", "4,5"]) == (rates, {"ngf": "4,5"})


REFUSED = [
    (["--lr", "1e-4,1e-3", "--setps", "4"], "--steps"),
    (["--lr", "1e-4"], "nothing to search"),
    (["--lr", "1e-4,1e-3", "--model", "CycleGun"], "CycleGAN, DeviationGAN"),
    (["--generator", "resnet_3block,resnet_9blocks"], "did you mean 'resnet_3blocks'"),
    (["--generator", "unet_128,resnet_3blocks", "--norm", "instance", "--ngf", "0"], "ngf=0"),
    (["--lr", "-1,1e-4"], "lr=-1"),
    (["--ngf", "4.5,8"], "--ngf"),
    (["--batch-size", "-1:2"], "--batch-size"),
    (["--lr", "1e-4,1e-3", "--cluster", "slrum"], "did you mean 'slurm'"),
    (["--show"], "there is no sweep"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_the_command_says_before_any_trial_what_it_cannot_do(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, error = call("sweep", *arguments)
    assert status in (1, 2) and message in error and "Traceback" not in error
    assert not list(tmp_path.glob("out/sweep/trial*"))


def test_photographs_that_no_trial_could_score_are_not_trained_on(call, tmp_path, monkeypatch):
    def offline():
        raise labkit.LabkitError("the weights of FID's Inception cannot be downloaded")

    monkeypatch.setattr("labkit.measure.scores.inception", offline)
    arguments = ["--lr", "1e-4,1e-3", "--data", "photos", *SMALL, "--out", tmp_path / "sweep"]
    status, _, error = call("sweep", *arguments)
    assert status == 1 and "cannot be downloaded" in error and not (tmp_path / "sweep").exists()


def test_an_interrupted_command_ends_with_130_and_how_to_go_on(call, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(labkit, "sweep", interrupted)
    status, _, error = call("sweep", "--lr", "1e-4,1e-3", *SMALL, "--out", tmp_path)
    assert status == 130 and "run the same again" in error


def test_a_sweep_that_has_just_begun_has_an_empty_table(start):
    assert start(counted(), trials=0).empty
