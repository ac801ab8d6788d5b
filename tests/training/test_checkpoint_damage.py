"""Flipped bits, full disks and ``kill -9``: nothing that was saved is lost, and nothing wrong is accepted."""

import contextlib
import random
import shutil

import pytest
from full_disk import files_no_larger_than
from killing import same, same_files, train_killed, train_unbroken

import labkit
from labkit.errors import CheckpointError
from labkit.training import checkpoints


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
    everywhere = [chance.randrange(bits) for _ in range(60)]
    ends = [chance.randrange(8 * 4000) for _ in range(15)] + [bits - 1 - chance.randrange(8 * 8000) for _ in range(60)]
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
    assert refused > 70


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


@pytest.mark.filterwarnings("ignore:step .*png")  # pytest keeps the messages in a file
def test_a_full_disk_ends_the_run_and_keeps_the_last_good_checkpoint(train, tmp_path):
    full = Full(3, 100)
    with pytest.raises(CheckpointError, match="^step 3: .*cannot be written.*continue from step 2.$"):
        train(5, tmp_path, full, **OPTIONS)
    assert checkpoints.load(tmp_path)["done"] == 2 and full.saved == [1, 2]
    assert not [file.name for file in tmp_path.iterdir() if "part" in file.name or "tmp" in file.name]
    assert train(5, tmp_path).losses == train(5).losses
    with pytest.raises(CheckpointError, match="^step 1: .*cannot be written.*Nothing was saved.$"):
        train(2, tmp_path / "new", Full(1, 100), **OPTIONS)


def test_a_damaged_checkpoint_names_those_that_were_kept(train, tmp_path):
    train(4, tmp_path, labkit.KeepEvery(2))
    newest, kept = tmp_path / checkpoints.FILE, tmp_path / "kept" / "000002.pt"
    content = newest.read_bytes()
    newest.write_bytes(content[:-5000])
    with pytest.raises(CheckpointError, match=rf"The run kept {kept}, .*000004.pt: to continue .* copy it to {newest}"):
        train(5, tmp_path)
    assert newest.read_bytes() == content[:-5000], "nobody starts afresh over it"
    shutil.copy(kept, newest)
    assert train(5, tmp_path).done == 5


# ---- ``kill -9`` at a random moment


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits_as_an_unbroken_one(tmp_path):
    whole = train_unbroken(tmp_path / "whole", steps=24)
    resumed, left_at = train_killed(tmp_path / "killed", steps=24, seed=0)
    assert 0 < left_at < whole["done"]
    assert same(resumed, whole)
    assert same_files(tmp_path / "killed", tmp_path / "whole")
    assert len(list((tmp_path / "whole" / "kept").iterdir())) == 3
