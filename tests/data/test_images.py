"""Pictures of every kind, in every way to give them, against truth computed from the pixels they were made of."""

import os
import struct
import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import files_no_larger_than
from PIL import Image

from labkit.data.batches import to_uint8
from labkit.data.images import find_pictures, read_picture, write_picture
from labkit.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:what is transparent in pictures becomes white")
Y, X = np.mgrid[0:32, 0:48]
RGB = np.dstack([X * 5, Y * 7, X + Y]).astype(np.uint8)  # no two corners alike: a wrong rotation shows
GREY, ALPHA = RGB[..., 0], (Y * 8).astype(np.uint8)
DEEP = np.random.default_rng(0).integers(0, 65536, (32, 48, 3)).astype(np.uint16)


def merged(mode, *channels):
    return Image.merge(mode, [Image.fromarray(np.ascontiguousarray(c)) for c in channels])


def on_white(colour, alpha):
    opacity = alpha[..., None] / 255
    return np.rint(colour * opacity + 255 * (1 - opacity))


def grey_as_rgb(grey):
    return np.repeat(grey[..., None], 3, axis=-1)


def deep_colour_png(pixels):
    """A 16-bit colour PNG by hand: Pillow writes none."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def written(image, path, options):
    """The path of a picture of Pillow, saved there, or of these bytes."""
    path.write_bytes(image) if isinstance(image, bytes) else image.save(path, **options)
    return path


def off_by(path, truth, twice=True):
    """How far the file is from the truth. Pillow's picture of it is the same, before it is loaded and afterwards."""
    picture, grey = read_picture(path), read_picture(path, 1)
    assert picture.dtype == torch.uint8 and picture.shape == (3, *truth.shape[:2])
    with Image.open(path) as image:
        assert torch.equal(read_picture(image), picture)
        assert not twice or torch.equal(read_picture(image, 1), grey)
    return np.abs(picture.permute(1, 2, 0).numpy() - truth.astype(float)).max()


PALETTE = Image.fromarray(RGB).quantize(16)
PALETTE_RGB = np.array(PALETTE.convert("RGB"))
OPACITIES = bytes([0, 128] + [255] * 14)
CLEAR_PALETTE = on_white(PALETTE_RGB, np.frombuffer(OPACITIES, np.uint8)[np.array(PALETTE)])
CMYK = np.dstack([255 - RGB, np.full_like(GREY, 40)])
CMYK_RGB = np.rint((255 - CMYK[..., :3].astype(float)) * (255 - 40) / 255)
PREVIEW = Image.fromarray(GREY[::2, ::2])
FINE = {"quality": 100, "subsampling": 0}
ALL = {"save_all": True}


DARKER = np.rint(RGB * (ALPHA[..., None] / 255)).astype(np.uint8)
EXTRA = struct.pack("<HHI", 338, 3, 1)  # the tag of a TIFF that says what its fourth channel is
# What Pillow does not write: CMYK that is not Adobe's, which it inverts, and colours that were multiplied by opacity.
OTHERWISE = {"plain_cmyk.jpg": (b"Adobe", b"Other"), "associated.tif": (EXTRA + b"\2", EXTRA + b"\1")}


KINDS = [
    ("grey.jpg", Image.fromarray(GREY), {}, grey_as_rgb(GREY)),
    ("grey_alpha.png", merged("LA", GREY, ALPHA), {}, on_white(grey_as_rgb(GREY), ALPHA)),
    ("rgba.png", Image.fromarray(np.dstack([RGB, ALPHA])), {}, on_white(RGB, ALPHA)),
    ("rgba.webp", Image.fromarray(np.dstack([RGB, ALPHA])), {"lossless": True}, on_white(RGB, ALPHA)),
    ("palette.png", PALETTE, {}, PALETTE_RGB),
    ("clear_palette.png", PALETTE, {"transparency": OPACITIES}, CLEAR_PALETTE),
    ("clear_grey.png", Image.fromarray(GREY), {"transparency": 40}, grey_as_rgb(np.where(GREY == 40, 255, GREY))),
    ("grey16.png", Image.fromarray(DEEP[..., 0]), {}, grey_as_rgb(DEEP[..., 0] / 257)),
    ("grey16.ppm", Image.fromarray(DEEP[..., 0].astype(np.int32)), {}, grey_as_rgb(DEEP[..., 0] / 257)),
    ("adobe_cmyk.jpg", merged("CMYK", *CMYK.transpose(2, 0, 1)), FINE, CMYK_RGB),
    ("colour.bmp", Image.fromarray(RGB), {}, RGB),
    ("one_bit.bmp", Image.fromarray(GREY > 99), {}, grey_as_rgb(255 * (GREY > 99))),
    ("packed.tiff", Image.fromarray(RGB), {"compression": "tiff_lzw"}, RGB),
    ("opaque.tif", Image.fromarray(RGB).convert("RGBA"), {}, RGB),
    ("extra.tif", merged("RGBX", *RGB.transpose(2, 0, 1), ALPHA), {}, RGB),
    ("camera.jpg", Image.fromarray(GREY), {"format": "MPO", "append_images": [PREVIEW], **ALL}, grey_as_rgb(GREY)),
    ("dark.pgm", Image.fromarray(GREY // 8), {}, grey_as_rgb(GREY // 8)),
    ("cmyk.tif", merged("CMYK", *CMYK.transpose(2, 0, 1)), {}, CMYK_RGB),
    ("white_is_zero.tif", Image.fromarray(GREY), {"tiffinfo": {262: 0}}, grey_as_rgb(GREY)),
    ("deep.png", deep_colour_png(DEEP), {}, DEEP / 257),
    ("12.pgm", b"P5 48 32 4095\n" + (DEEP[..., 0] >> 4).byteswap().tobytes(), {}, grey_as_rgb(DEEP[..., 0] / 257)),
    ("plain_cmyk.jpg", merged("CMYK", *(255 - CMYK).transpose(2, 0, 1)), FINE, CMYK_RGB),
    ("associated.tif", Image.fromarray(np.dstack([DARKER, ALPHA])), {}, DARKER + 255.0 - ALPHA[..., None]),
]


@pytest.mark.parametrize("name, image, options, truth", KINDS)
def test_every_kind_comes_out_right(tmp_path, name, image, options, truth):
    path = written(image, tmp_path / name, options)
    path.write_bytes(path.read_bytes().replace(*OTHERWISE.get(name, (b"", b""))))
    assert off_by(path, truth, twice=name != "associated.tif") <= 1  # of which Pillow knows no more once it is loaded


UNCERTAIN = [
    ("scan.tif", Image.fromarray(RGB), {"append_images": [Image.fromarray(GREY)], **ALL}, "several pages"),
    ("frames.png", Image.fromarray(RGB), {"append_images": [PALETTE], **ALL}, "several pages or frames"),
    ("12_bits.png", Image.fromarray(DEEP[..., 0] >> 4), {}, "16 bits, of which the upper two are never used"),
    ("14_bits.pgm", Image.fromarray(DEEP[..., 0] >> 2), {"format": "PPM"}, "the upper two are never used"),
    ("12_bits_colour.png", deep_colour_png(DEEP >> 4), {}, "the upper two are never used"),
    ("12_bits.ppm", b"P6 48 32 65535\n" + (DEEP >> 4).byteswap().tobytes(), {}, "the upper two are never used"),
    ("infrared.tif", Image.fromarray(np.dstack([RGB, ALPHA])), {}, "one channel more than its colours"),
    ("depth.tif", Image.fromarray(GREY.astype(np.float32)), {}, "mode F, more than 8 bits"),
    ("grey16.tif", Image.fromarray(DEEP[..., 0]), {}, "mode I;16, more than 8 bits"),
    ("animation.jpg", Image.fromarray(GREY), {"format": "GIF"}, "cannot be read as a JPEG.*cannot identify"),
]


@pytest.mark.parametrize("name, image, options, cause", UNCERTAIN)
def test_what_has_no_certain_colours_is_refused(tmp_path, name, image, options, cause):
    with pytest.raises(DataError, match=f"{name} .*{cause}"):
        read_picture(written(image, tmp_path / name, options))
    if "identify" not in cause:
        with Image.open(tmp_path / name) as opened, pytest.raises(DataError, match=f"^item 3, B: .*{cause}"):
            read_picture(opened, place="item 3, B: ")


NUMBERS = {
    "grey": (GREY, GREY),
    "colour": (RGB[..., ::-1], RGB[..., ::-1]),
    "truth values": (GREY > 99, 255 * (GREY > 99)),
    "grey of 16 bits": (DEEP[..., :1], DEEP[..., 0] >> 8),
    "colour of 16 bits": (DEEP.astype(">u2"), DEEP >> 8),
    "long": (DEEP.astype(np.int64), DEEP >> 8),
    "half": ((RGB / 127.5 - 1).astype(np.float16), RGB),
    "double": (GREY / 127.5 - 1, GREY),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_arrays_and_tensors_are_the_picture_that_pillow_makes_of_them(kind):
    given, truth = NUMBERS[kind]
    right = read_picture(Image.fromarray(truth.astype(np.uint8)))
    native = np.atleast_3d(given).astype(given.dtype.newbyteorder("="))
    given.flags.writeable = False
    for found in (read_picture(given), read_picture(torch.from_numpy(native).permute(2, 0, 1))):
        assert torch.equal(found if found.dtype == torch.uint8 else to_uint8(found), right)


REFUSED = [
    (np.moveaxis(RGB, 2, 0), 3, r"ndarray .*shape .3, 32, 48., but tensors have .3, H, W., arrays .H, W, 3."),
    (RGB[:3], 3, "shape .3, 48, 3., but"),
    (torch.zeros(32, 48, 3), 3, "Tensor .*shape .*32, 48, 3"),
    (np.dstack([RGB, ALPHA]), 3, "shape .32, 48, 4.*arrays .H, W, 3."),
    (Image.fromarray(RGB), 4, "Image .*shape .32, 48, 3.*arrays .H, W, 4."),
    (RGB, 1, "shape .32, 48, 3.*arrays .H, W, 1."),
    (RGB.astype(np.int64), 3, "int64 from 0 to .*the upper two are never used"),
    (DEEP.astype(np.int32) * 2, 3, "int32 from .* to 131"),
    (RGB / 255 * 2, 3, "it holds 1.84.*, but floats run from -1, black, to 1, white"),
    (None, 3, "NoneType cannot be used as a picture"),
]


@pytest.mark.parametrize(("given", "channels", "cause"), REFUSED)
def test_other_numbers_are_refused_with_the_reason(given, channels, cause):
    with pytest.raises(DataError, match=cause):
        read_picture(given, channels)


def test_a_warning_says_what_was_transparent():
    for alpha, said in ((ALPHA, pytest.warns(UserWarning, match="transparent")), (255 + 0 * ALPHA, nullcontext())):
        with said:
            read_picture(Image.fromarray(np.dstack([RGB, alpha])))


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_exif_rotation_is_carried_out(tmp_path, suffix):
    turned_over = RGB[::-1, ::-1]
    upright = [RGB, RGB[:, ::-1], turned_over, RGB[::-1], RGB.transpose(1, 0, 2), np.rot90(RGB, -1)]
    upright += [turned_over.transpose(1, 0, 2), np.rot90(RGB)]
    for orientation, truth in enumerate(upright, start=1):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(RGB).save(tmp_path / f"{orientation}.{suffix}", exif=exif, **(FINE if suffix == "jpg" else {}))
        assert off_by(tmp_path / f"{orientation}.{suffix}", truth) <= 4, orientation


BAD_FILES = [
    (Path.touch, "cannot identify"),
    (lambda path: path.write_text("just a text"), "cannot be read as a JPEG, PNG, WebP, BMP, TIFF or PPM"),
    (lambda path: path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"), "export it as JPEG"),
    (lambda path: os.truncate(written(Image.fromarray(RGB), path, {}), 700), "truncated"),
    (lambda path: None, "No such file"),
    (Path.mkdir, "no file, but a folder"),
    (os.mkfifo, "no file, but a folder, a pipe"),
    (lambda path: path.symlink_to("/dev/zero"), "no file, .* or a device"),
]


@pytest.mark.parametrize("make, cause", BAD_FILES)
def test_a_bad_file_is_named_with_its_cause(tmp_path, make, cause):
    make(tmp_path / "holiday.jpg")
    with pytest.raises(DataError, match=f"holiday.jpg.*{cause}"):
        read_picture(tmp_path / "holiday.jpg")


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    Image.fromarray(RGB).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", RGB.shape[0] * RGB.shape[1] // 2 - 1)  # Pillow refuses at twice that
    with pytest.raises(DataError, match="bomb.png .*decompression bomb"):
        read_picture(tmp_path / "bomb.png")


def test_folders_in_folders_are_searched_once_each_and_hidden_ones_not_at_all(tmp_path):
    elsewhere, album = tmp_path / "elsewhere", tmp_path / "album"
    for name in ("b/z.png", "b/deep/a.TIFF", ".hidden/no.png", "b/.no.png", "a.bmp", "c.ppm", "d.heif", "e.txt", "f/g"):
        (album / name).parent.mkdir(parents=True, exist_ok=True)
        (album / name).touch()
    (elsewhere / "x").mkdir(parents=True)
    (elsewhere / "x" / "linked.jpg").touch()
    (album / "link").symlink_to(elsewhere)
    (album / "again").symlink_to(elsewhere / "x")
    (album / "b" / "loop").symlink_to(album)
    (album / "b" / "one.jpg").symlink_to(elsewhere / "x" / "linked.jpg")
    (album / "x.jpg").symlink_to(elsewhere / "gone.jpg")
    found = [str(path.relative_to(album)) for path in find_pictures(album)]
    assert found == ["a.bmp", "again/linked.jpg", "b/deep/a.TIFF", "b/one.jpg", "b/z.png", "c.ppm", "d.heif", "x.jpg"]
    assert [path.name for path in find_pictures(album / "link")] == ["linked.jpg"]


@pytest.mark.parametrize("name", ["missing", "file.jpg"])
def test_only_a_folder_can_be_searched(tmp_path, name):
    (tmp_path / "file.jpg").touch()
    with pytest.raises(DataError, match=f"{name} cannot be listed"):
        find_pictures(tmp_path / name)


@pytest.mark.parametrize("suffix, tolerance", [("PNG", 0), ("jpeg", 12), ("webp", 12)])
def test_what_is_written_is_read_back(tmp_path, suffix, tolerance):
    path = tmp_path / "new" / f"out.{suffix}"
    write_picture(torch.from_numpy(RGB).permute(2, 0, 1), path)
    assert off_by(path, RGB) <= tolerance
    assert list(path.parent.iterdir()) == [path]


def test_an_unknown_suffix_or_place_is_refused(tmp_path):
    picture = torch.zeros(3, 8, 8, dtype=torch.uint8)
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    for name, cause in [("out.heic", "must end in one of .jpg"), ("file/out.png", "file"), ("folder.png", "folder")]:
        with pytest.raises(DataError, match=f"{name} cannot be written.*{cause}"):
            write_picture(picture, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_full_disk_leaves_the_old_picture_and_nothing_else(tmp_path):
    path = tmp_path / "out.png"
    write_picture(torch.zeros(3, 8, 8, dtype=torch.uint8), path)
    before = path.read_bytes()
    with files_no_larger_than(1000), pytest.raises(DataError, match="out.png cannot be written"):
        write_picture(torch.randint(256, (3, 64, 64), dtype=torch.uint8), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
