"""Flipped bits and full disks: nothing that was saved is lost, and nothing wrong is accepted."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from full_disk import files_no_larger_than
from killing import same

import labkit
from labkit.errors import CheckpointError
from labkit.training import checkpoints, keeping


@pytest.fixture(scope="module")
def run(tiny, fruit, tmp_path_factory):
    """The folder of a run of two steps."""
    folder = tmp_path_factory.mktemp("run")
    labkit.fit(labkit.make_step(tiny()), fruit, 2, checkpoint=folder)
    return folder


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_flipped_bit_is_refused_or_harmless(run, tmp_path):
    """The larger part of the flips in tensors; the others in the first and last bytes, where names and sizes are."""
    content, right = (run / checkpoints.FILE).read_bytes(), checkpoints.load(run)
    chance, file, bits = random.Random(0), tmp_path / "flipped.pt", 8 * len(content)
    everywhere = [chance.randrange(bits) for _ in range(150)]
    ends = [chance.randrange(8 * 4000) for _ in range(30)] + [bits - 1 - chance.randrange(8 * 8000) for _ in range(120)]
    refused = 0
    for bit in everywhere + ends:
        file.write_bytes(flipped(content, bit))
        try:
            state = checkpoints.load(file)
        except CheckpointError as error:
            assert "damaged" in str(error) or "not a checkpoint" in str(error), error
            refused += 1
        else:
            assert same(state, right), f"bit {bit} changed the checkpoint, and nobody noticed"
    assert refused > 150


def test_torch_alone_accepts_a_flipped_bit_of_a_weight(run, tmp_path):
    """Otherwise the test above would show nothing."""
    content, file = (run / checkpoints.FILE).read_bytes(), tmp_path / "flipped.pt"
    weight = next(iter(checkpoints.load(run)["step"]["model"].values()))
    at = content.index(weight.numpy().tobytes())
    file.write_bytes(flipped(content, 8 * at))
    assert not same(torch.load(file), checkpoints.load(run))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoints.load(file)


def test_the_form_before_pytorch_1_6_has_no_checksums_and_loads(tmp_path, tiny):
    file = tmp_path / "latest_net_G.pth"
    torch.save(tiny().G_A.state_dict(), file, _use_new_zipfile_serialization=False)
    labkit.load_generator(file)


class Full(labkit.Callback):
    """The disk takes nothing from the report of step `first` to that of step `last`."""

    def __init__(self, first, last):
        self.first, self.last, self.saved = first, last, []
        self.stack = contextlib.ExitStack()

    def on_report(self, run):
        if run.done == self.first:
            self.stack.enter_context(files_no_larger_than(1))
        if run.done == self.last:
            self.stack.close()

    def on_save(self, run, path):
        self.saved.append(run.done)

    def on_end(self, run):
        self.stack.close()


OPTIONS = dict(report_every=1, sample_every=1, save_minutes=0)


@pytest.mark.filterwarnings("ignore:step .*(png|csv|tfevents)")
def test_a_full_disk_is_waited_out(tiny, fruit, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is optional")
    full = Full(3, 6)
    callbacks = [labkit.TensorBoard(tmp_path / "tensorboard"), full]
    with pytest.warns(UserWarning, match="checkpoint.pt cannot be written .File too large.*kept.*of step 2") as said:
        run = labkit.fit(
            labkit.make_step(tiny()), fruit, 8, checkpoint=tmp_path, callbacks=callbacks, keep_every=4, **OPTIONS
        )
    assert full.saved == [1, 2, 6, 7, 8] and run.done == 8
    of_checkpoint = [str(one.message) for one in said if "checkpoint.pt" in str(one.message)]
    assert len(of_checkpoint) == 2 and "step 3" in of_checkpoint[0]
    assert "step 4 is not kept" in of_checkpoint[1], "it cannot be made up for later"
    assert [path.name for path in (tmp_path / "kept").glob("*.pt")] == ["000008.pt"]
    whole = labkit.fit(labkit.make_step(tiny()), fruit, 8)
    assert checkpoints.load(tmp_path)["losses"].keys() == whole.losses.keys()
    assert all(map(torch.equal, labkit.load_model(tmp_path).parameters(), whole.model.parameters()))
    lines = (tmp_path / "losses.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["step", *map(str, range(1, 9))]


@pytest.mark.filterwarnings("ignore:step")
def test_a_disk_that_stays_full_ends_the_run_with_the_step_to_go_on_from(tiny, fruit, tmp_path):
    with pytest.raises(CheckpointError, match="^step 5: .*cannot be written.*go on from step 2.$"):
        full = Full(3, 100)
        labkit.fit(labkit.make_step(tiny()), fruit, 5, checkpoint=tmp_path, callbacks=[full], **OPTIONS)
    assert checkpoints.load(tmp_path)["done"] == 2
    resumed = labkit.fit(labkit.make_step(tiny()), fruit, 5, checkpoint=tmp_path)
    assert resumed.losses == labkit.fit(labkit.make_step(tiny()), fruit, 5).losses
    with pytest.raises(CheckpointError, match="^step 2: .*cannot be written.*Nothing was saved.$"):
        full = Full(1, 100)
        labkit.fit(labkit.make_step(tiny()), fruit, 2, checkpoint=tmp_path / "new", callbacks=[full], **OPTIONS)


def test_it_tries_again_after_a_minute_at_most(tiny, fruit, tmp_path):
    run = labkit.fit(labkit.make_step(tiny()), fruit, 1, checkpoint=tmp_path)
    keeper = keeping.Keeper(run, {}, minutes=60)
    assert not keeper.late()
    with files_no_larger_than(1), pytest.warns(UserWarning, match="no checkpoint so far"):
        assert keeper.save(last=False) is None
    assert 0 < keeper.due_at - keeping.time.monotonic() <= keeping.RETRY


def mounts():
    """Whether this user may mount a file system of his own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(sys.platform != "linux" or not mounts(), reason="a small disk needs a file system of one's own")
def test_on_a_real_disk_without_room_the_command_line_ends_with_one_line(tmp_path):
    options = "--size 16 --ngf 4 --workers 0 --device cpu --save-minutes 0 --keep-every 1 --steps"
    train = f"{sys.executable} -m labkit train --out {tmp_path}/run {options}"
    # A disk of 3 MB: a checkpoint takes most of one, so that the first ones that are kept fill it.
    script = f"mkdir {tmp_path}/run && mount -t tmpfs -o size=3m tmpfs {tmp_path}/run && {train} 5; echo ended $?"
    script += f"; rm {tmp_path}/run/kept/*; {train} 5; echo ended $?; cp -r {tmp_path}/run {tmp_path}/copy"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr and "No space left on device" in done.stderr
    assert "ended 1" in done.stdout and "go on from step" in done.stderr, done.stderr
    assert "Training goes on" in done.stderr
    checkpoints.load(tmp_path / "copy")
