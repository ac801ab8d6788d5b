"""The files for Slurm on a real one: a run on two nodes, requeued, stopped by its time limit or cancelled; a sweep.

Debian's packages slurm-wlm and munge make a cluster of one machine: a slurm.conf with two NodeNames, each with a Port
of its own and NodeAddr=127.0.0.1, two processors each, then munged, slurmctld, and `slurmd -N` for each node.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from killing import same

import labkit
from labkit.training import checkpoints

pytestmark = pytest.mark.skipif(not shutil.which("sbatch"), reason="there is no sbatch; how to get it stands above")

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = "--data fruit --size 32 --ngf 4 --ndf 4 --device cpu --no-tensorboard --save-minutes 60"
STEPS = 400


def submit(folder: Path, name: str, *changes: tuple[str, str]) -> str:
    """Submits an example after changes, each of which has to change it; gives the job's number."""
    text = (EXAMPLES / name).read_text()
    for old, new in changes:
        assert re.search(old, text), old
        text = re.sub(old, new, text)
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    command = ["sbatch", "--parsable", "--output=log", name]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def train(folder: Path, steps: int, limit: str = "00:20:00") -> str:
    """A run of train.slurm, with fruit, on two nodes without GPUs."""
    return submit(
        folder,
        "train.slurm",
        ("#SBATCH --gpus-per-node=8\n", ""),
        ("--cpus-per-task=32", "--cpus-per-task=1"),
        ("--time=04:00:00", f"--time={limit}"),
        ("TERM@120", "TERM@30"),
        (r'"?\$?SLURM_GPUS_PER_NODE"?', "1"),
        ("--data horse2zebra --batch-size 16", f"{SMALL} --batch-size 2 --steps {steps}"),
        ("out/horse2zebra", "run"),
    )


def state(job: str) -> str:
    said = subprocess.run(["scontrol", "show", "job", job], check=True, capture_output=True, text=True).stdout
    return re.search(r"JobState=(\w+)", said)[1]


def wait(job: str, *states: str, folder: Path, seconds: float = 300) -> str:
    """Waits until the job is in one of these states, and gives it."""
    until = time.monotonic() + seconds
    while (now := state(job)) not in states:
        assert time.monotonic() < until, f"{now}\n{(folder / 'log').read_text()[-3000:]}"
        time.sleep(0.5)
    return now


def wait_for_steps(job: str, folder: Path) -> None:
    """Waits until the run has done some steps, none of which it has saved by itself."""
    until = time.monotonic() + 300
    while not (folder / "run" / "losses.csv").exists():
        assert time.monotonic() < until and state(job) in ("PENDING", "RUNNING"), (folder / "log").read_text()[-3000:]
        time.sleep(0.2)
    assert not (folder / "run" / checkpoints.FILE).exists()


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The folder of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    job = train(folder, STEPS)
    assert wait(job, *ENDED, folder=folder) == "COMPLETED"
    return folder / "run"


def test_two_nodes_train_to_the_end(unbroken):
    assert checkpoints.load(unbroken)["done"] == STEPS


def test_a_requeued_run_ends_in_the_same_bits(unbroken, tmp_path, report):
    job = train(tmp_path, STEPS)
    wait_for_steps(job, tmp_path)
    subprocess.run(["scontrol", "requeue", job], check=True)
    wait(job, "PENDING", folder=tmp_path)
    saved = checkpoints.load(tmp_path / "run")["done"]
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)  # Slurm waits two minutes else
    ended = wait(job, *ENDED, folder=tmp_path)
    equal = same(checkpoints.load(unbroken), checkpoints.load(tmp_path / "run"))
    report(saved_at=saved, ended=ended, same_bits=equal)
    assert 0 < saved < STEPS and ended == "COMPLETED" and equal


def test_the_time_limit_leaves_a_checkpoint(tmp_path, report):
    job = train(tmp_path, 10**6, limit="00:02:00")
    ended = wait(job, *ENDED, folder=tmp_path)
    saved = checkpoints.load(tmp_path / "run")["done"]
    report(saved_at=saved, ended=ended)
    assert saved > 0


def test_a_cancelled_run_leaves_a_checkpoint(tmp_path, report):
    job = train(tmp_path, 10**6)
    wait_for_steps(job, tmp_path)
    subprocess.run(["scancel", job], check=True)
    wait(job, "CANCELLED", folder=tmp_path)
    time.sleep(15)  # the steps end after the job is called so
    saved = checkpoints.load(tmp_path / "run")["done"]
    report(saved_at=saved)
    assert saved > 0


def test_six_trials_of_a_sweep_are_jobs_that_end_once(tmp_path, report):
    """One of them is killed by `scancel` on the way, and one is requeued."""
    job = submit(
        tmp_path,
        "sweep.slurm",
        ("--mem=2G\n", "--mem=100M\n"),
        ("--data horse2zebra", f"{SMALL} --steps 200 --workers 0 --save-minutes 0.01"),
        ("--ngf 32,64 --trials 64", "--batch-size 1,2 --trials 6"),
        ("--at-once 8", "--at-once 3"),
        ('--slurm ".*"', '--slurm "--cpus-per-task=1 --time=00:10:00"'),
    )
    sweep = tmp_path / "out" / "sweep"
    for number, command in ((0, ["scancel"]), (1, ["scontrol", "requeue"])):
        while not (sweep / f"trial_000{number}" / checkpoints.FILE).exists():
            assert state(job) in ("PENDING", "RUNNING"), (tmp_path / "log").read_text()
            time.sleep(0.2)
        study = labkit.sweeps.load_study(sweep)
        subprocess.run([*command, study.get_trials()[number].user_attrs["job"]], check=True)
    ended = wait(job, *ENDED, folder=tmp_path, seconds=500)
    table = labkit.sweeps.table(sweep)
    rows = [len(Path(folder, "losses.csv").read_text().splitlines()) for folder in table["folder"]]
    report(ended=ended, trials=len(table), complete=int((table["state"] == "complete").sum()), rows=rows)
    assert ended == "COMPLETED" and list(table["state"]) == ["complete"] * 6
    assert rows == [201] * 6  # a header, and each step once
