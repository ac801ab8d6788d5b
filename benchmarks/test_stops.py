"""Ways to stop a run: each saves first, or loses what `--save-minutes` allows, and leaves no process behind.

The options are the defaults, those of the workers too, but for small networks on small pictures.
"""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from labkit.training import callbacks, checkpoints

TRAIN = "train --device cpu --size 24 --generator resnet_3blocks --ngf 4 --ndf 4 --steps 1000000 --decay-steps 0"
TWO = " --processes 2 --workers 1 --batch-size 2"
SAVE_SECONDS = 2
WAYS = {  # processes, signal, who receives it, and whether the run goes on
    "TERM, process": (1, "TERM", "process"),
    "TERM, group": (1, "TERM", "group"),
    "INT, group": (1, "INT", "group"),
    "HUP, group": (1, "HUP", "group"),
    "TERM, worker": (1, "TERM", "worker"),
    "KILL, worker": (1, "KILL", "worker"),
    "KILL, process": (1, "KILL", "process"),
    "TERM, launcher": (2, "TERM", "process"),
    "INT, launcher's group": (2, "INT", "group"),
    "HUP, launcher's group": (2, "HUP", "group"),
    "TERM, every process of two ranks": (2, "TERM", "all"),
    "TERM, one rank": (2, "TERM", "rank"),
    "KILL, worker of a rank": (2, "KILL", "worker"),
    "KILL, launcher": (2, "KILL", "process"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_loses_no_step(way, tmp_path, report):
    processes, name, receiver = WAYS[way]
    number, killed = getattr(signal, f"SIG{name}"), name == "KILL" and receiver == "process"
    run = start(tmp_path, processes, save_minutes=SAVE_SECONDS / 60 if killed else 5)
    try:
        started = wait_until_it_trains(tmp_path, run)
        ranks = psutil.Process(run.pid).children() if processes > 1 else [psutil.Process(run.pid)]
        everyone = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
        of_rank = ranks[-1].children()
        age = time.time() - (tmp_path / checkpoints.FILE).stat().st_mtime if killed else 0.0
        done = rows(tmp_path)
        if receiver == "group":
            os.killpg(run.pid, number)
        for process in {"process": everyone[:1], "rank": ranks[-1:], "worker": of_rank[:1], "all": everyone}.get(
            receiver, []
        ):
            process.send_signal(number)
        if name == "TERM" and receiver == "worker":
            wait_for_rows(tmp_path, done + 100, run)
            os.killpg(run.pid, signal.SIGTERM)
        run.wait(120)
        _, left = psutil.wait_procs(everyone, timeout=15)
    finally:
        for process in {process for process in everyone if process.is_running()}:
            process.kill()
    said = (tmp_path / "said").read_text()
    saved = checkpoints.load(tmp_path) if (tmp_path / checkpoints.FILE).exists() else {"done": 0}
    report(way=way, code=run.returncode, rows=done, saved=saved["done"], age=round(age, 1), left=len(left))
    lost = name == "KILL" and receiver == "worker"
    assert run.returncode == (-number if killed else 1 if lost else 128 + number), said
    assert not left and "Traceback" not in said
    assert saved["done"] == len(saved["losses"]["G_A"]) >= (started if killed else done)
    if killed:
        assert age < SAVE_SECONDS + 10  # a checkpoint may be under way, and this machine busy
    elif lost:
        assert re.search(rf"labkit: a process that prepares batches died .*saved in {tmp_path}", said), said
    else:
        assert f"stopped after step {saved['done']} of 1000000; saved in {tmp_path}" in said


def start(folder, processes, save_minutes):
    """The run, in a process group of its own; its messages go into a file."""
    options = f"{TRAIN}{TWO * (processes > 1)} --save-minutes {save_minutes:.4f} --out {folder}"
    with open(folder / "said", "w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "labkit", *options.split()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def rows(folder):
    """Steps in losses.csv, to which each report adds those since the last one."""
    file = folder / callbacks.LOSSES
    return max(0, file.read_text().count("\n") - 1) if file.exists() else 0


def wait_for_rows(folder, n, run):
    while rows(folder) < n:
        assert run.poll() is None, (folder / "said").read_text()
        time.sleep(0.1)


def wait_until_it_trains(folder, run):
    """Returns after the second report, with the number of steps of the first one."""
    wait_for_rows(folder, 1, run)
    first = rows(folder)
    wait_for_rows(folder, first + 1, run)
    return first
