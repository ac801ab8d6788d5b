"""Pictures that break during a run, and a run that continues with other pictures than it began with."""

import os
import re
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny import noisy_pictures

import labkit
from labkit.data import folders as module
from labkit.data.images import read_picture
from labkit.errors import CheckpointError, DataError
from labkit.training import checkpoints


@pytest.fixture
def album(tmp_path):
    """A folder of small noisy photographs, of different sizes, with the same names in both domains."""
    counts = {"trainA": 4, "trainB": 3}
    sizes = {name: [(40 + number, 52 - count) for number in range(count)] for name, count in counts.items()}
    return noisy_pictures(tmp_path / "album", sizes)


def cut(file):
    file.write_bytes(file.read_bytes()[:300])


def smaller(file):
    Image.new("RGB", (200, 30)).save(file)


class Misfortune(labkit.Callback):
    """Pictures break after the second step, and after the fourth the folder is away."""

    def __init__(self, album):
        self.album = album

    def on_step(self, run):
        if run.done == 2:
            for k, damage in enumerate((cut, smaller, Path.unlink), start=1):
                damage(self.album / "trainA" / f"{k}.png")
        if run.done == 9:
            assert torch.equal(run.data.train_a[3], run.data.train_a[0])
            self.album.rename(self.album.with_name("away"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:step|train")
def test_a_run_goes_on_without_a_picture_that_breaks_but_not_without_any(tiny, album, monkeypatch, workers):
    def fit(*callbacks):
        data, step, run = labkit.folders(album, 32), labkit.make_step(tiny()), album.with_name("run")
        return labkit.fit(step, data, 24, checkpoint=run, workers=workers, callbacks=callbacks)

    monkeypatch.setattr(module, "IN_MEMORY", 0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(DataError, match=r"^None of the [34] pictures in .* can be used any more. Bring[^\n]*$"):
            fit(Misfortune(album))
    found = (re.match(r"left out, with 0.png in its place: \S*(\d.png)", str(each.message)) for each in told)
    names = sorted(each[1] for each in found if each)
    assert names == ([] if workers else ["1.png", "2.png", "3.png"]), "what a worker has told is not told again"
    album.with_name("away").rename(album)
    with pytest.warns(UserWarning, match="this run began: of A 3 gone. Training continues"):
        assert fit().done == 24


def test_what_was_decoded_for_a_run_is_not_decoded_again(album, monkeypatch):
    def decoded(**options):
        read.clear()
        data = labkit.folders(album, **{"size": 32, "checked": album.with_name("run"), **options})
        return sorted(read), data

    def noted(file, channels):
        read.append(file.name)
        return read_picture(file, channels)

    read = []
    monkeypatch.setattr(module, "read_picture", noted)
    test = ["0.png", "0.png", "1.png", "1.png", "2.png", "2.png", "3.png"]  # the stand-ins
    assert decoded()[0] == decoded()[0] == sorted(test * 2), "in memory"
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    assert decoded()[0] == sorted(test * 2) and decoded()[0] == []
    smaller(album / "trainA" / "2.png")
    with pytest.warns(UserWarning, match=r"^trainA: 3 pictures, 1 left out, such as\n\S*2.png: 200 x 30 pixels"):
        changed, data = decoded()
    assert changed == ["2.png"] and len(data.train_a) == 3 and len(data.files[0]) == 3
    assert not torch.equal(data.train_a[1], data.train_a[2])
    os.remove(album / "trainA" / "2.png")
    assert decoded(size=36)[0] and decoded(size=36)[0] == []
    (album.with_name("run") / "pictures_36.pt").write_text("x")
    assert decoded(size=36)[0]


def exchanged(album):
    (album / "trainA").rename(album / "x")
    (album / "trainB").rename(album / "trainA")
    (album / "x").rename(album / "trainB")


def copied(album):
    shutil.copytree(album, album.with_name("copy"), copy_function=shutil.copyfile)
    shutil.rmtree(album)
    album.with_name("copy").rename(album)


def renamed(album):
    for file in album.glob("train?/*"):
        file.rename(file.with_name(f"x{file.name}"))


def of_one_size(album):
    for file in album.glob("train?/*"):
        file.write_bytes(file.read_bytes().ljust(20_000))


def old_stamps(album, kept=True):
    """The checkpoint with times of change in the place of checksums."""
    state = checkpoints.load(album.with_name("run"))
    files = [[(name, size, 1) for name, size, _ in stamps] for stamps in state["files"]]
    checkpoints.write_checkpoint({**state, "files": files if kept else []}, album.with_name("run"))


def forgotten(album):
    """The checkpoint, as an earlier version wrote it."""
    old_stamps(album, kept=False)


CHANGES = [
    ([copied, lambda album: album.rename(album.with_name("moved"))], None),
    ([forgotten], None),
    ([old_stamps, copied], None),
    ([old_stamps, exchanged], "trainA and trainB have changed places.* another folder"),
    ([of_one_size, lambda album: shutil.copy(album / "trainB/1.png", album / "trainA/0.png")], "of A 1 changed"),
    ([lambda album: smaller(album / "trainB" / "0.png")], "of B 1 gone. Training continues"),
    ([lambda album: shutil.copy(album / "trainB/1.png", album / "trainA/0.png")], "of A 1 changed. Training continues"),
    ([lambda album: os.rename(album / "trainA/3.png", album / "trainB/9.png")], "of A 1 gone; of B 1 new. Training"),
    ([lambda album: os.renames(album / "trainA/0.png", album / "trainA/x/0.png")], "of A all in another order"),
    ([exchanged, copied], "trainA and trainB have changed places.* another folder"),
    ([of_one_size, exchanged, copied], "trainA and trainB have changed places.* another folder"),
    ([renamed], "none of these: of A 4 gone, 4 new; of B 3 gone, 3 new.*another folder"),
    ([forgotten, lambda album: smaller(album / "trainA" / "0.png")], r"another run: pictures=\[4, 3\] there, \[3, 3\]"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGES)
@pytest.mark.filterwarnings("ignore:train|pictures in both")
def test_a_run_knows_its_pictures_and_not_their_folder(tiny, album, changes, said):
    def fit(steps):
        (folder,) = (path.parent for path in album.parent.glob("*/trainA"))
        run = labkit.fit(labkit.make_step(tiny()), labkit.folders(folder, 32), steps, checkpoint=album.with_name("run"))
        assert run.done == steps

    of_one_size(album) if of_one_size in changes else None
    fit(1)
    for change in changes:
        change(album)
    if said and "another folder" in said or forgotten in changes and said:
        with pytest.raises(CheckpointError, match=said):
            fit(2)
    elif said:
        with pytest.warns(UserWarning, match=said):
            fit(2)
    if said is None or "order" in said:
        with warnings.catch_warnings(action="error"):  # what the run has seen now are these
            fit(3)
