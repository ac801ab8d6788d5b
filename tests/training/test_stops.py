"""Signals and deaths that reach more than the process that trains."""

import multiprocessing
import os
import signal
import sys
import time

import forked
import psutil
import pytest
import torch

import labkit
from labkit import ranks
from labkit.errors import TrainingError
from labkit.training import callbacks, checkpoints

TRAIN = "train --size 16 --generator resnet_3blocks --ngf 4 --steps 100000 --decay-steps 0 --device cpu --out"


@pytest.mark.slow
def test_a_signal_to_every_process_saves_and_is_the_exit_status(tmp_path):
    messages = tmp_path / "said"
    run = forked.labkit(messages, *TRAIN.split(), str(tmp_path))
    while not (tmp_path / callbacks.LOSSES).exists():
        assert run.is_alive(), messages.read_text()
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGHUP)
    run.join(60)
    done, said = checkpoints.load(tmp_path)["done"], messages.read_text()
    assert run.exitcode == 128 + signal.SIGHUP and f"stopped after step {done} of 100000; saved in" in said


def test_a_signal_that_was_ignored_does_not_stop_a_run(train):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert train(2, None, lambda run: signal.raise_signal(signal.SIGHUP), report_every=1).done == 2
    finally:
        signal.signal(signal.SIGHUP, before)


def kill_worker(run):
    """Kills a process that prepares batches."""
    if run.done == 2:
        next(child for child in psutil.Process().children() if child.name() == "pt_data_worker").kill()


def test_a_worker_that_is_killed_costs_no_step(train, tmp_path):
    told = f"prepares batches died .*saved in {tmp_path}: run the same.*fewer workers"
    with pytest.raises(TrainingError, match=told):
        train(10000, tmp_path, kill_worker, report_every=1, workers=1)
    saved = checkpoints.load(tmp_path)
    assert saved["done"] == len(saved["losses"]["G_A"]) >= 2


def fails(error):
    def function(*given):
        raise error

    return function


NO_ROOM = RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)")


FAILURES = [
    (torch.Tensor, "share_memory_", NO_ROOM, "/dev/shm is full: .*--shm-size.*fewer workers"),
    (multiprocessing.reduction, "DupFd", OSError(24, "Too many open files"), "prepares batches died"),
]


@pytest.mark.parametrize(("place", "name", "error", "message"), FAILURES)
def test_a_batch_that_a_worker_cannot_hand_over_ends_the_run(train, tmp_path, monkeypatch, place, name, error, message):
    monkeypatch.setattr(place, name, fails(error))
    with pytest.raises(TrainingError, match=f"{message}.*saved in {tmp_path}"):
        train(9, tmp_path, batch_size=2, workers=1)
    assert checkpoints.load(tmp_path)["done"] == 0


class Pairs(list):
    """Eight pairs of pictures; after so many were read comes something else."""

    def __init__(self, batch, after, then):
        super().__init__(range(8))
        self.batch, self.after, self.then, self.read = batch, after, then, 0

    def __getitem__(self, index):
        self.read += 1
        if self.read > self.after:
            self.then()
        return tuple(half[0] for half in self.batch(seed=index))


def hang():
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(600)


def test_a_signal_ends_the_wait_for_a_batch(tiny, batch, tmp_path):
    pairs = Pairs(batch, 6, hang)  # four of them are the sample pictures
    with pytest.raises(KeyboardInterrupt, match="stopped after step [12] of 100; saved in"):
        labkit.fit(labkit.make_step(tiny()), pairs, 100, checkpoint=tmp_path, workers=1)
    workers = [child for child in psutil.Process().children() if child.name() == "pt_data_worker"]
    assert not psutil.wait_procs(workers, timeout=10)[1], "it still runs"


def test_a_dataset_whose_pictures_have_gradients_does_not_hang(tiny, batch):
    pairs = [tuple(half[0].requires_grad_() for half in batch(seed=seed)) for seed in range(4)]
    assert labkit.fit(labkit.make_step(tiny()), pairs, 2, workers=1).done == 2


def test_an_error_of_the_pictures_costs_no_step(tiny, batch, tmp_path):
    pairs = Pairs(batch, 8, fails(OSError("a network drive went away")))
    with pytest.raises(OSError, match="went away"):
        labkit.fit(labkit.make_step(tiny()), pairs, 100, checkpoint=tmp_path)
    assert checkpoints.load(tmp_path)["done"] == 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_a_rank_hears_that_torchrun_was_killed(tmp_path):
    """Its parent here is a process that ends at once."""
    middle = forked.start(tmp_path / "said", _leave_a_rank, tmp_path / "rank")
    middle.join()
    rank = psutil.Process(int((tmp_path / "rank").read_text()))
    assert psutil.wait_procs([rank], timeout=10)[0], "it still runs"


def _leave_a_rank(file):
    rank = os.fork()
    if rank == 0:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        with ranks.process_group():
            file.with_suffix(".part").write_text(str(os.getpid()))
            file.with_suffix(".part").rename(file)
            time.sleep(600)
    while not file.exists():
        time.sleep(0.01)
    os._exit(0)
