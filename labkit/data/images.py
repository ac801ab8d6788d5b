"""Picture files: found in a folder, read as tensors, written whole or not at all."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, ImageOps
from torch import Tensor

from labkit.errors import DataError, LabkitError
from labtrace.files import atomic_write

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}  # read and written
IN_FILES = (1, 3)  # channels: grey, or RGB
READABLE = "JPEG, PNG, WebP, BMP, TIFF or PPM"
# Pictures of the second row cannot be read. They are found so that none is passed over without a word.
SUFFIXES = set(
    ".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .tif .tiff .ppm .pgm .pbm .pnm "
    ".heic .heif .avif .gif .jp2 .j2k .jpf .jpx .jxl .tga .psd .svg .dng .cr2 .cr3 .nef .arw".split()
)


def find_pictures(folder: Path | str) -> list[Path]:
    """The picture files in `folder` and in its sub-folders, sorted by name, as the reference finds them.

    Suffixes count in upper and lower case. Hidden files and folders (`._x.jpg`, `.thumbnails`) are passed over. Links
    are followed, but no folder is searched twice.

    Raises:
        DataError: `folder`, or one in it, is missing, not a folder, or may not be listed.
    """
    pictures: list[Path] = []
    searched: set[str] = set()

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be listed: {error.strerror}. Name a folder that holds pictures.")

    for place, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        if os.path.realpath(place) in searched:
            folders.clear()
            continue
        searched.add(os.path.realpath(place))
        folders[:] = sorted(name for name in folders if name[0] != ".")
        shown = (Path(place, name) for name in files if name[0] != ".")
        pictures += [file for file in shown if file.suffix.lower() in SUFFIXES]
    return sorted(pictures)


def read_picture(path: Path | str, channels: int = 3) -> Tensor:
    """The picture at `path`, of a type in `READABLE`, upright: ``uint8``, (3, H, W) in RGB or (1, H, W) in grey.

    Grey and CMYK become RGB, 16 bits become 8 (the high byte), transparency becomes white, and the rotation that a
    camera notes in EXIF is carried out. Colour profiles are not applied, as in the public reference.

    Raises:
        DataError: the file cannot be read, is damaged, or is no such picture. Or its colours are not certain: several
            pages or frames, a TIFF of grey with more than 8 bits, 16 bits of which the upper two are never used, or a
            TIFF whose fourth channel need not be transparency. Or it has over 179 million pixels, where Pillow suspects
            a decompression bomb.
        LabkitError: the memory does not suffice.
    """
    # Pillow, not torchvision.io: that drops transparency instead of compositing it, ignores EXIF in WebP, and is
    # deprecated since torchvision 0.29.
    try:
        with Image.open(path, formats=["JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM"]) as image:
            pixels = np.array(_as_rgb(image) if channels == 3 else _as_rgb(image).convert("L"))
    except MemoryError as error:  # the picture may be a good one, so it is not left out as damaged ones are
        raise LabkitError(
            f"{path}: out of memory while this picture was decoded. Close other programs, or use smaller pictures."
        ) from error
    except Exception as error:  # on damaged files Pillow raises nearly anything: OSError, SyntaxError, struct.error...
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} cannot be read as a {READABLE} picture ({reason}). Copy it again from where it came, export it as "
            "JPEG, or take it out."
        ) from error
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], channels)).permute(2, 0, 1)


def _as_rgb(image: Image.Image) -> Image.Image:
    """The picture, upright and in RGB. Raises `ValueError` where Pillow would make wrong colours, or drop pages."""
    stored = str([tile.args for tile in image.tile])  # type: ignore[attr-defined]  # how the file holds its numbers
    tiff = image.format == "TIFF"
    if image.mode == "F" or image.mode[0] == "I" and tiff:
        raise ValueError(f"pixels of mode {image.mode}, more than 8 bits")  # of which none is certain to be white
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:  # a camera's MPO has a preview of the first
        raise ValueError("several pages or frames")  # Pillow would take the first
    inverted = image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode[0] == "I":  # 16-bit grey, which Pillow would clip at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if inverted:  # Pillow inverts every CMYK JPEG, as only Adobe's need
        image = ImageChops.invert(image)
    if re.search(";16[BL]|65535", stored) and np.asarray(image.convert("RGB")).max() < 64:
        raise ValueError("16 bits, of which the upper two are never used: scale its numbers up to 65535")
    if tiff and image.mode in ("LA", "RGBA") and np.asarray(image)[..., -1].min() < 255 and "RGBa" not in stored:
        raise ValueError("one channel more than its colours, perhaps infrared: save its colours alone")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def colours_of(path: Path | str, channels: int) -> tuple[bytes | None, bool]:
    """Of a picture that can be read: its ICC profile if it fits a result of so many channels, and whether it is opaque.

    A grey profile fits grey alone. The profile of CMYK or of CIELAB fits neither grey nor RGB.
    """
    with Image.open(path) as image:
        profile = image.info.get("icc_profile") or b""
        fits = profile[16:20] == {1: b"GRAY", 3: b"RGB "}[channels] and image.mode not in ("CMYK", "LAB", "YCbCr")
        opaque = not image.has_transparency_data or image.convert("RGBA").getchannel("A").getextrema()[0] == 255
    return profile if fits else None, opaque


def write_picture(picture: Tensor, path: Path | str, profile: bytes | None = None) -> None:
    """Writes a ``uint8`` tensor of shape (3, H, W), or grey (1, H, W), to `path`, in the format of its suffix.

    The file is written beside `path` and then renamed, so that an interruption leaves no half picture. Folders that
    are missing are made. JPEG and WebP are written at quality 95. `profile` is an ICC profile to write into it.

    Raises:
        DataError: the suffix is unknown, or the file cannot be written there.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} cannot be written: its name must end in one of {', '.join(FORMATS)}.")
    encoded = io.BytesIO()  # encoded in memory, because Pillow hides the reason when a disk is full
    image = Image.fromarray(picture.permute(1, 2, 0).squeeze(2).contiguous().cpu().numpy())
    image.save(encoded, FORMATS[path.suffix.lower()], quality=95, icc_profile=profile)
    with atomic_write(path, DataError) as part:
        part.write_bytes(encoded.getbuffer())
