"""Pictures of any size come back translated, at their size, one file or a folder."""

import pytest
import torch
from torch import nn

import labkit
from labkit.data.images import read_picture, write_picture
from labkit.networks.generators import make_generator
from labkit.training import translate as translating


class Negative(nn.Module):
    """Translates a picture into its negative, pixel by pixel; takes multiples of 32 only."""

    multiple = least = 32

    def __init__(self):
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(-1.0))
        self.sizes = []

    def forward(self, picture):
        assert all(side % 32 == 0 for side in picture.shape[-2:])
        self.sizes.append(max(picture.shape[-2:]))
        return picture * self.sign


def picture(height, width, seed=0):
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [(32, 64), (33, 95), (1, 1), (5, 300), (250, 130)])
def test_any_size_keeps_its_size_and_every_pixel_its_place(tmp_path, monkeypatch, size):
    monkeypatch.setattr(translating, "TILE", 96)
    monkeypatch.setattr(translating, "OVERLAP", 32)
    write_picture(picture(*size), tmp_path / "in.png")
    network = Negative()
    assert labkit.translate(network, tmp_path / "in.png", tmp_path / "out.png") == [tmp_path / "out.png"]
    assert torch.equal(read_picture(tmp_path / "out.png"), 255 - picture(*size))
    assert max(network.sizes) <= 96


def test_tiles_fade_into_each_other_without_a_seam(tmp_path, monkeypatch):
    monkeypatch.setattr(translating, "TILE", 96)
    monkeypatch.setattr(translating, "OVERLAP", 32)

    class TileNumber(Negative):
        """Every tile comes out brighter than the one before, the worst that instance norm can do."""

        def forward(self, part):
            super().forward(part)
            return torch.full_like(part, len(self.sizes) / 2 - 1)

    write_picture(picture(40, 224), tmp_path / "in.png")
    labkit.translate(TileNumber(), tmp_path / "in.png", tmp_path / "out.png")
    row = read_picture(tmp_path / "out.png")[0, 20].int()
    assert row[0] < row[112] < row[-1]
    assert row.diff().abs().max() < 8


def test_directions_are_the_two_generators(tiny, tmp_path):
    model = tiny()
    write_picture(picture(32, 32), tmp_path / "in.png")
    for direction in ("AtoB", "BtoA"):
        labkit.translate(model, tmp_path / "in.png", tmp_path / f"{direction}.png", direction)
    assert not torch.equal(read_picture(tmp_path / "AtoB.png"), read_picture(tmp_path / "BtoA.png"))
    assert model.training, "the model is left in the mode it was in"


def test_a_unet_takes_a_picture_it_was_not_built_for(tmp_path):
    write_picture(picture(100, 140), tmp_path / "in.png")
    labkit.translate(make_generator("unet_128", 2), tmp_path / "in.png", tmp_path / "out.png")
    assert read_picture(tmp_path / "out.png").shape == (3, 100, 140)


def test_a_folder_is_translated_and_what_cannot_be_read_is_listed(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    write_picture(picture(32, 32), source / "pear.png")
    write_picture(picture(32, 40), source / "pear.jpg")
    (source / "words.jpg").write_text("not a picture")
    with pytest.warns(UserWarning, match="left out:\n.*words.jpg"):
        written = labkit.translate(Negative(), source, tmp_path / "out")
    assert [path.name for path in written] == ["pear.jpg.png", "pear.png.png"]
    assert all(path.is_file() for path in written)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("missing.png", "out.png", "missing.png"),
        ("words.jpg", "out.png", "words.jpg"),
        ("in.png", "in.png", "take the place of its source"),
        ("in.png", "out.tiff", "out.tiff"),
        ("in.png", "only_words/words.jpg/out.png", "words.jpg"),
        ("empty", "out", "no pictures"),
        ("only_words", "out", "none of its pictures can be read"),
        ("full", "in.png", "cannot be made"),
    ],
)
def test_what_cannot_be_translated_is_refused(tmp_path, source, target, message):
    write_picture(picture(32, 32), tmp_path / "in.png")
    for folder in ("empty", "only_words", "full"):
        (tmp_path / folder).mkdir()
    for file in ("words.jpg", "only_words/words.jpg"):
        (tmp_path / file).write_text("not a picture")
    write_picture(picture(32, 32), tmp_path / "full" / "a.png")
    before = (tmp_path / "in.png").read_bytes()
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.translate(Negative(), tmp_path / source, tmp_path / target)
    assert (tmp_path / "in.png").read_bytes() == before
