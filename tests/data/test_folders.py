"""Folders of pictures: what is read, what is left out and said, and every wrong layout."""

import os
import re
import shutil

import pytest
import torch
from PIL import Image
from tiny import noisy_pictures

import labkit
from labkit.data import folders as module
from labkit.errors import DataError


@pytest.fixture
def album(tmp_path):
    """A folder of small noisy photographs, none of them square."""
    counts = {"trainA": 4, "trainB": 3, "testA": 2, "testB": 1}
    sizes = {name: [(40 + number, 52) for number in range(count)] for name, count in counts.items()}
    return noisy_pictures(tmp_path / "album", sizes, "jpg", quality=95)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_does_not_fit_in_memory_gives_the_same_batches(album, monkeypatch, workers):
    kept = labkit.folders(album, size=32)
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    on_disk = labkit.folders(album, size=32)
    assert kept.train_a.shape == (4, 3, 36, 36), "32 * 286 / 256 is 35.75"
    assert isinstance(kept.train_a, torch.Tensor) and not isinstance(on_disk.train_a, torch.Tensor)
    assert torch.equal(torch.stack([on_disk.test_a[k] for k in range(2)]), kept.test_a[:2])
    found, right = labkit.batches(on_disk, 2, 0, 5, workers=workers), labkit.batches(kept, 2, 0, 5)
    torch.testing.assert_close([*found], [*right], rtol=0, atol=0)


@pytest.mark.parametrize("free", [0, 1 << 30])
def test_unusable_pictures_are_left_out_and_named(album, monkeypatch, free):
    monkeypatch.setattr(module, "IN_MEMORY", free)
    whole = labkit.folders(album, size=32)
    (album / "trainA" / "0.jpg").write_text("no picture")
    Image.new("RGB", (200, 30)).save(album / "trainA" / "1_low.png")
    (album / "trainA" / "\x1b[31m.heic").touch()
    os.mkfifo(album / "trainB" / "z.png")
    with pytest.warns(UserWarning) as warned:
        data = labkit.folders(album, size=32)
    of_a, of_b = (str(warning.message) for warning in warned)
    wanted = [
        r"^trainA: 3 pictures, 3 left out, such as",
        r"\\x1b\[31m\.heic .*cannot identify",
        r"0\.jpg cannot be read as a JPEG",
        r"1_low\.png: .*30.* pixels, smaller than size=32",
    ]
    assert re.search("(?s:.*)".join(wanted), of_a) and "\x1b" not in of_a and warned[0].filename == __file__
    assert re.search(r"^trainB: 3 pictures, 1 left out, such as\n\S*z\.png .*a pipe", of_b)
    assert len(data.train_a) == 3 and len(data.train_b) == 3
    assert torch.equal(torch.stack(list(data.train_a)), torch.stack([whole.train_a[k] for k in range(1, 4)]))


def test_a_picture_of_both_domains_is_named(album):
    shutil.copy(album / "trainB" / "1.jpg", album / "trainA" / "x.jpg")
    with pytest.warns(UserWarning, match="^pictures in both domains: 1, such as x.jpg$"):
        labkit.folders(album, size=32)


def test_pictures_for_which_the_memory_does_not_suffice_are_not_left_out(album, monkeypatch):
    def full(image, mode):
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", full)
    with pytest.raises(labkit.LabkitError, match=r"trainA.0\.jpg: out of memory while this picture was decoded"):
        labkit.folders(album, size=32)


def test_training_pictures_stand_in_for_test_pictures(album):
    shutil.rmtree(album / "testA")
    (album / "testB" / "0.jpg").unlink()
    (album / "trainA" / "0.jpg").write_text("no picture")
    with pytest.warns(UserWarning, match="left out"):
        data = labkit.folders(album, size=32)
    assert len(data.test_a) == 3 and len(data.test_b) == 3
    assert data.test_a.shape[1:] == (3, 32, 32)


def test_data_are_printed_without_their_pixels(album):
    assert repr(labkit.folders(album, size=32)) == "UnpairedData(data='album', pictures=[4, 3], size=32)"
    assert repr(labkit.fruit(n=4, size=32)) == "FruitData(data='fruit', pictures=[4, 4], size=32)"


def test_the_bar_of_reading_is_drawn_now_and_then_in_a_log(album, capsys):
    for k in range(100, 200):
        shutil.copy(album / "trainA" / "0.jpg", album / "trainA" / f"{k}.jpg")
    assert len(labkit.folders(album, size=32).train_a) == 104
    drawn = capsys.readouterr().err.split("\r")
    assert "100%" in drawn[-1] and sum("reading trainA" in line for line in drawn) <= 2


def emptied(album):
    for folder in (album / "trainA", album / "trainB"):
        shutil.rmtree(folder)
        folder.mkdir()


WRONG_LAYOUTS = [
    (lambda album: None, 15, "size=15: at least 16"),
    (shutil.rmtree, 32, "trainA is not a folder.* needs folders trainA and trainB"),
    (lambda album: shutil.rmtree(album / "trainB"), 32, "trainB is not a folder"),
    (emptied, 32, "trainA holds no picture"),
    (lambda album: None, 64, "None of the 4 pictures in trainA can be used: the warning"),
]


@pytest.mark.filterwarnings("ignore:trainA")
@pytest.mark.parametrize("change, size, message", WRONG_LAYOUTS)
def test_a_wrong_layout_is_said_in_one_message(album, change, size, message):
    change(album)
    with pytest.raises(DataError, match=message):
        labkit.folders(album, size=size)


def test_a_missing_folder_is_named_from_the_root_on(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}/photos/trainA is not a folder. photos needs"):
        labkit.folders("photos")
