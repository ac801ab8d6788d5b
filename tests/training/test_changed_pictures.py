"""Pictures that break during a run, and a run that goes on with other pictures than it began with."""

import os
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import labkit
from labkit.data import folders as module
from labkit.data.images import read_picture
from labkit.errors import CheckpointError, DataError, PictureWarning
from labkit.training import checkpoints


@pytest.fixture
def album(tmp_path):
    """A folder of small noisy photographs, of different sizes, with the same names in both domains."""
    rng = np.random.default_rng(0)
    for name, count in {"trainA": 4, "trainB": 3}.items():
        (tmp_path / "album" / name).mkdir(parents=True)
        for k in range(count):
            pixels = rng.integers(0, 256, (40 + k, 52 - count, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "album" / name / f"{k}.png")
    return tmp_path / "album"


def cut(file):
    file.write_bytes(file.read_bytes()[:300])


def smaller(file):
    Image.new("RGB", (200, 30)).save(file)


DAMAGES = {1: cut, 2: smaller, 3: Path.unlink}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_that_breaks_is_replaced_by_the_next_one_with_one_warning(album, monkeypatch, workers):
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    data = labkit.folders(album, size=32)
    first = data.train_a[0]
    for k, damage in DAMAGES.items():
        damage(album / "trainA" / f"{k}.png")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (batch,) = labkit.batches(data, 8, 0, 1, workers=workers)
        assert all(torch.equal(data.train_a[k], first) for k in range(4))
    said = [re.search(r"with 0.png in its place: \S*(\d.png)", str(warning.message))[1] for warning in told]
    assert sorted(said) == ([] if workers else ["1.png", "2.png", "3.png"]), "what a worker told is not told again"
    assert told == [] or told[0].category is PictureWarning
    assert torch.equal(batch[0], next(labkit.batches(data, 8, 0, 1))[0])
    shutil.rmtree(album / "trainA")
    with pytest.raises(DataError, match=r"None of the 4 pictures in .*trainA can be used any more. Bring them back.*2"):
        data.train_a[2]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_whose_pictures_are_gone_is_saved_and_goes_on_when_they_are_back(tiny, album, monkeypatch, workers):
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    away = album.with_name("away")

    class Unmounted(labkit.Callback):
        def on_step(self, run):
            if run.done == 2:
                album.rename(away)

    def fit(*callbacks):
        step, run = labkit.make_step(tiny()), album.with_name("run")
        return labkit.fit(step, labkit.folders(album, 32), 12, checkpoint=run, workers=workers, callbacks=callbacks)

    with pytest.raises(DataError, match=r"^None of the 4 pictures[^\n]*$"):
        fit(Unmounted())
    assert checkpoints.load(album.with_name("run"))["done"] >= 2
    away.rename(album)
    assert fit().done == 12


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
    with pytest.warns(UserWarning, match="left out.*2.png is only 30 pixels"):
        changed, data = decoded()
    assert changed == ["2.png"] and len(data.train_a) == 3 and data.files[0].shape == (3, 3)
    assert not torch.equal(data.train_a[1], data.train_a[2])
    os.remove(album / "trainA" / "2.png")
    assert decoded(size=36)[0] and decoded(size=36)[0] == []
    (album.with_name("run") / "pictures.pt").write_text("x")
    assert decoded(size=36)[0]


def exchanged(album):
    (album / "trainA").rename(album / "x")
    (album / "trainB").rename(album / "trainA")
    (album / "x").rename(album / "trainB")


def copied(album):
    shutil.copytree(album, album.with_name("copy"), copy_function=shutil.copyfile)
    shutil.rmtree(album)
    album.with_name("copy").rename(album)


def into_a_folder(album):
    (album / "trainA" / "x").mkdir()
    (album / "trainA" / "0.png").rename(album / "trainA" / "x" / "0.png")


def renamed(album):
    for file in album.glob("train?/*"):
        file.rename(file.with_name(f"x{file.name}"))


def of_one_size(album):
    for second, file in enumerate(album.glob("train?/*")):
        file.write_bytes(file.read_bytes().ljust(20_000))
        os.utime(file, (second, second))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([copied], None),
        ([lambda album: smaller(album / "trainB" / "0.png")], "of B 1 gone"),
        ([lambda album: shutil.copy(album / "trainB/1.png", album / "trainA/0.png")], "of A 1 changed"),
        ([lambda album: (album / "trainA" / "3.png").rename(album / "trainB" / "9.png")], "of A 1 gone; of B 1 new"),
        ([into_a_folder], "of A all in another order"),
        ([exchanged, copied], "trainA and trainB are exchanged"),
        ([of_one_size, exchanged], "trainA and trainB are exchanged"),
        ([renamed], "seen none of these pictures: of A 4 gone, 4 new; of B 3 gone, 3 new"),
    ],
)
@pytest.mark.filterwarnings("ignore:left out")
def test_a_run_knows_its_pictures_and_not_their_folder(tiny, album, changes, said):
    def fit(folder, steps):
        return labkit.fit(labkit.make_step(tiny()), labkit.folders(folder, 32), steps, checkpoint=folder.parent / "run")

    if of_one_size in changes:
        of_one_size(album)
    fit(album, 1)
    for change in changes:
        change(album)
    moved = album.rename(album.with_name("moved"))
    if said is None:
        with warnings.catch_warnings(action="error"):
            assert fit(moved, 2).done == 2
    elif "1 " in said or "order" in said:
        with pytest.warns(UserWarning, match=f"{said}. It goes on"):
            fit(moved, 2)
        fit(moved, 3)  # with no word: what it has seen now are these
    else:
        with pytest.raises(CheckpointError, match=f"run: .*{said}.*another folder to start again"):
            fit(moved, 2)


def test_a_checkpoint_that_does_not_know_its_files_goes_on_with_as_many_in_the_same_folder(tiny, album):
    run = album.with_name("run")
    for steps in (1, 2):
        labkit.fit(labkit.make_step(tiny()), labkit.folders(album, 32), steps, checkpoint=run)
        state = checkpoints.load(run)
        del state["files"]
        checkpoints.write_checkpoint(state, run)
    os.remove(album / "trainA" / "0.png")
    with pytest.raises(CheckpointError, match=r"pictures=\[4, 3\] there, \[3, 3\] here"):
        labkit.fit(labkit.make_step(tiny()), labkit.folders(album, 32), 3, checkpoint=run)
