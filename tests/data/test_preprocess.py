"""Folders are prepared in three of the reference's ways, and a run keeps to the one that it began with."""

import numpy as np
import pytest
import torch
from PIL import Image

import labkit
from labkit.data import folders as module
from labkit.data.batches import to_uint8
from labkit.data.folders import PREPROCESS, preparation
from labkit.errors import CheckpointError

BICUBIC = Image.Resampling.BICUBIC
SHAPES = {"trainA": [(40, 52), (45, 90)], "trainB": [(61, 33)], "testA": [(50, 70)]}


@pytest.fixture
def album(tmp_path):
    """Smooth pictures, of different sizes: (height, width)."""
    for name, shapes in SHAPES.items():
        (tmp_path / name).mkdir()
        for k, (height, width) in enumerate(shapes):
            coarse = np.random.default_rng(k).integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((width, height), BICUBIC).save(tmp_path / name / f"{k}.png")
    return tmp_path


def reference_size(mode, width, height, load, crop):
    """(width, height) after the reference's resizing, as its description has it."""
    if mode == "resize_and_crop":
        return load, load
    if mode == "scale_width_and_crop":
        return load, max(int(load * height / width), crop)
    return width, height


@pytest.mark.parametrize("mode", PREPROCESS)
@pytest.mark.parametrize("free", [0, 1 << 30])
def test_pictures_are_resized_as_in_the_reference(album, monkeypatch, mode, free):
    monkeypatch.setattr(module, "IN_MEMORY", free)
    load = 48 if mode != "crop" else None
    data = labkit.folders(album, 32, preprocess=mode, load_size=load)
    for name, pictures in (("trainA", data.train_a), ("trainB", data.train_b)):
        for k, (height, width) in enumerate(SHAPES[name]):
            right = Image.open(album / name / f"{k}.png")
            right = right.resize(reference_size(mode, width, height, load, 32), BICUBIC)
            ours = pictures[k].permute(1, 2, 0).numpy().astype(int)
            assert ours.shape == np.array(right).shape and np.abs(ours - np.array(right)).max() <= 2
    assert data.test_a[0].shape == data.test_b[0].shape == (3, 32, 32)
    assert {tuple(half.shape[1:]) for k in range(20) for half in data.example(0, k)} == {(32, 32)}


@pytest.mark.parametrize("mode", ["crop", "scale_width_and_crop"])
def test_crops_are_parts_of_the_picture_and_test_pictures_its_middle(album, mode):
    data = labkit.folders(album, 32, preprocess=mode, flip=False)
    whole = data.train_b[0]
    parts = whole.unfold(1, 32, 1).unfold(2, 32, 1)  # every place, by row and column
    places = []
    for position in range(60):
        crop = to_uint8(data.example(0, position)[1])
        found = (parts == crop[:, None, None]).all(dim=(0, 3, 4)).nonzero().tolist()
        assert found, "a crop that is not mirrored is a part of the picture"
        places += found
    assert min(places)[0] == 0 and max(places)[0] == whole.shape[1] - 32, "up to the edges"
    prepared = preparation(mode, 32, 36)[0](labkit.data.read_picture(album / "testA" / "0.png"))
    top, left = (round((side - 32) / 2) for side in prepared.shape[1:])
    assert torch.equal(data.test_a[0], prepared[:, top : top + 32, left : left + 32])


def test_without_flips_the_crops_stay(album):
    with_flips, without = (labkit.folders(album, 32, flip=flip) for flip in (True, False))
    pairs = [(with_flips.example(0, k)[1], without.example(0, k)[1]) for k in range(40)]
    same = [torch.equal(*pair) for pair in pairs]
    assert 5 < sum(same) < 35
    assert all(torch.equal(a, b) or torch.equal(a.flip(-1), b) for a, b in pairs)


CHOICES = [dict(preprocess="crop"), dict(load_size=40), dict(flip=False)]


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_a_run_goes_on_with_the_same_preparation_only(tiny, album, tmp_path, chosen):
    def train(steps, **settings):
        data = labkit.folders(album, 32, **settings)
        return labkit.fit(labkit.make_step(tiny()), data, steps, checkpoint=tmp_path / "run")

    train(1, **chosen)
    train(2, **chosen)
    name = "preprocess" if "preprocess" in chosen else next(iter(chosen))
    with pytest.raises(CheckpointError, match=f"another run: {name}="):
        train(3)


def test_the_options_reach_the_folder(call, album, tmp_path):
    small = ["--size", "32", "--ngf", "2", "--ndf", "2", "--generator", "resnet_3blocks", "--steps", "1"]
    run = ["train", "--data", album, "--out", tmp_path / "run", *small, "--workers", "0", "--device", "cpu"]
    run += ["--preprocess", "scale_width_and_crop", "--load-size", "40", "--no-flip"]
    status, _, error = call(*run)
    assert status == 0, error
    saved = torch.load(tmp_path / "run" / "checkpoint.pt")["batches"]
    assert (saved["preprocess"], saved["load_size"], saved["flip"]) == ("scale_width_and_crop", 40, False)
    status, _, error = call("train", "--out", tmp_path / "fruit", "--no-flip")
    assert status == 1 and "--no-flip are for folders" in error
