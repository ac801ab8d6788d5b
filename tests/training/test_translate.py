"""Pictures of any size come back translated, at their size or another, one file or a folder."""

import sys

import pytest
import torch
from PIL import Image, ImageCms
from torch import nn

import labkit
from labkit.data.images import read_picture, write_picture
from labkit.errors import DataError
from labkit.training import translate as translating


class Negative(nn.Module):
    """Translates a picture into its negative, pixel by pixel; takes multiples of 32 only."""

    size_multiple = min_size = 32

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
def test_any_size_keeps_its_size_and_every_pixel_its_place(tmp_path, size):
    write_picture(picture(*size), tmp_path / "in.png")
    assert labkit.translate(Negative(), tmp_path / "in.png", tmp_path / "out.png") == [tmp_path / "out.png"]
    assert torch.equal(read_picture(tmp_path / "out.png"), 255 - picture(*size))


def test_directions_are_the_two_generators(tiny, tmp_path):
    model = tiny()
    write_picture(picture(32, 32), tmp_path / "in.png")
    for direction in ("AtoB", "BtoA"):
        labkit.translate(model, tmp_path / "in.png", tmp_path / f"{direction}.png", direction)
    assert not torch.equal(read_picture(tmp_path / "AtoB.png"), read_picture(tmp_path / "BtoA.png"))
    assert model.training, "the model is left in the mode it was in"


def test_folders_in_a_folder_are_kept_and_results_are_not_translated_again(tmp_path):
    album = tmp_path / "album"
    for name in ("pear.png", "trees/pear.png", "trees/pear.webp", "trees/far/apple.png", ".hidden/no.png"):
        write_picture(picture(32, 32), album / name)
    Image.fromarray(picture(32, 32).permute(1, 2, 0).numpy()).save(album / "trees" / "oak.bmp")
    right = ["pear.png", "trees/far/apple.png", "trees/oak.png", "trees/pear.png.png", "trees/pear.webp.png"]
    for target in (tmp_path / "out", album / "negatives"):
        for _ in range(2):
            written = labkit.translate(Negative(), album, target, overwrite=True)
            assert [str(path.relative_to(target)) for path in written] == right
            assert torch.equal(read_picture(target / "trees" / "oak.png"), 255 - picture(32, 32))
        if target.parent == tmp_path:
            assert sorted(str(p.relative_to(target)) for p in target.rglob("*.png")) == right
    assert len(labkit.translate(Negative(), album / "trees" / "far", album)) == 1, "a target above its source"


REFUSED = [
    ("missing.png", "out.png", "missing.png: there is no such file or folder. Name a picture"),
    ("words.jpg", "out.png", "words.jpg"),
    ("in.png", "in.png", "take the place of its source"),
    ("in.png", "out.tiff", "out.tiff"),
    ("in.png", "only_words/words.jpg/out.png", "words.jpg"),
    ("empty", "out", "no pictures"),
    ("only_words", "out", "words.jpg cannot be read as a"),
    ("full", "in.png", "cannot be written"),
]


@pytest.mark.parametrize(("source", "target", "message"), REFUSED)
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


def test_existing_files_are_skipped_or_overwritten_only_if_asked(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png", "c.png"):
        write_picture(picture(32, 32), tmp_path / "in" / name)
    write_picture(picture(8, 8, seed=1), tmp_path / "out" / "b.png")
    before = (tmp_path / "out" / "b.png").read_bytes()
    for source, target in (("in", "out"), ("in/a.png", "out/b.png")):
        with pytest.raises(labkit.LabkitError, match=r"exist already, such as .*b\.png.*--overwrite"):
            labkit.translate(Negative(), tmp_path / source, tmp_path / target)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["b.png"]
    written = labkit.translate(Negative(), tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert [file.name for file in written] == ["a.png", "c.png"]
    assert (tmp_path / "out" / "b.png").read_bytes() == before
    assert len(labkit.translate(Negative(), tmp_path / "in", tmp_path / "out", overwrite=True)) == 3
    assert torch.equal(read_picture(tmp_path / "out" / "b.png"), 255 - picture(32, 32))


def test_a_size_by_request_is_that_of_test_pictures_in_training(tmp_path):
    for folder in ("trainA", "trainB", "testA"):
        write_picture(picture(50, 90), tmp_path / folder / "a.png")
    resized = labkit.folders(tmp_path, size=32).test_a[0]
    labkit.translate(Negative(), tmp_path / "testA", tmp_path / "out", size=32)
    assert torch.equal(read_picture(tmp_path / "out" / "a.png"), 255 - resized)
    with pytest.raises(labkit.LabkitError, match="size=0: .* at least 1"):
        labkit.translate(Negative(), tmp_path / "testA", tmp_path / "out", size=0, overwrite=True)


@pytest.fixture
def folder(tmp_path):
    """A small picture, a larger one, and another small one."""
    for name, side in (("a", 32), ("b", 64), ("c", 32)):
        write_picture(picture(side, side), tmp_path / "in" / f"{name}.png")
    return tmp_path / "in"


NO_MEMORY = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 35 GiB."), "CUDA out of memory"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), "the host.*"),
    (MemoryError(), "MemoryError"),
    (RuntimeError("could not create a primitive"), "could not create a primitive"),
]


@pytest.mark.parametrize(("error", "reason"), NO_MEMORY)
def test_a_picture_that_is_too_large_for_the_memory_is_left_out(folder, error, reason):
    class OutOfMemory(Negative):
        def forward(self, pictures):
            if pictures.shape[2] > 40:
                raise error
            return pictures * self.sign

    network, out = OutOfMemory(), folder.parent / "out"
    with pytest.raises(DataError, match=rf"64x64 pixels is too large for the memory \({reason}\).*give --size"):
        labkit.translate(network, folder / "b.png", folder.parent / "b.png")
    with pytest.warns(UserWarning, match=r"left out:\n.*b\.png: a picture of 64x64 pixels is too large"):
        assert [file.name for file in labkit.translate(network, folder, out)] == ["a.png", "c.png"]
    (written,) = labkit.translate(network, folder, out, size=32, skip_existing=True)
    assert written.name == "b.png" and read_picture(written).shape == (3, 32, 32)


FAILS = [
    (lambda pictures: pictures[:, :2] @ pictures, "must match"),
    (lambda pictures: pictures[..., ::2], r"Negative cannot take .*returns shape .*size_multiple.*resize"),
]


@pytest.mark.parametrize(("does", "message"), FAILS)
def test_a_network_that_fails_or_changes_the_size_is_not_taken_for_lack_of_memory(folder, does, message):
    network = Negative()
    network.forward = does
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.translate(network, folder, folder.parent / "out")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_progress_bar_only_where_there_is_a_terminal(tmp_path, monkeypatch, capsys, terminal):
    for name in ("a.png", "b.png"):
        write_picture(picture(32, 32), tmp_path / "in" / name)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    labkit.translate(Negative(), tmp_path / "in", tmp_path / "out")
    assert ("2/2" in capsys.readouterr().err) == terminal


ENDS = [
    ("write_picture", DataError("out/05.png cannot be written (no space left on device).")),
    ("read_picture", labkit.LabkitError("in/05.png: out of memory while this picture was decoded.")),
    ("_translated", KeyboardInterrupt("stopped")),
]


@pytest.mark.parametrize(("place", "error"), ENDS, ids=["a full disk", "memory", "ctrl-c"])
def test_what_ends_a_translation_says_how_many_are_written(tmp_path, monkeypatch, place, error):
    function = getattr(translating, place)

    def until(*given):
        if any(getattr(argument, "name", "") == "05.png" for argument in given):
            raise error
        return function(*given)

    for i in range(30):
        write_picture(picture(32, 32, seed=i), tmp_path / "in" / f"{i:02}.png")
    monkeypatch.setattr(translating, place, until)
    with pytest.raises(type(error), match=str(error).split("(")[0]) as ended:
        labkit.translate(Negative(), tmp_path / "in", tmp_path / "out")
    written = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert written == [f"{i:02}.png" for i in range(len(written))]
    assert f"{len(written)} of 30 pictures are translated" in str(ended.value)


RGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
CMYK = RGB.replace(b"RGB ", b"CMYK", 1)  # the colour space of a profile stands in its header


PROFILES = [("RGB", RGB, RGB), ("L", RGB, RGB), ("RGB", CMYK, None), ("CMYK", RGB, None)]


@pytest.mark.parametrize(("mode", "profile", "kept"), PROFILES)
def test_a_profile_is_kept_if_it_fits_and_exif_is_not(tmp_path, mode, profile, kept):
    exif = Image.Exif()
    exif[0x010E] = "at home"
    Image.new(mode, (32, 32)).save(tmp_path / "in.jpg", icc_profile=profile, exif=exif)
    labkit.translate(Negative(), tmp_path / "in.jpg", tmp_path / "out.jpg")
    with Image.open(tmp_path / "out.jpg") as result:
        assert result.info.get("icc_profile") == kept and not result.getexif()
