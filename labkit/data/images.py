"""Picture files: found in a folder, read as tensors, written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, ImageOps
from torch import Tensor

from labkit.errors import DataError
from labkit.files import atomic_write

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
_READ = sorted(set(FORMATS.values()))
# Found but not read, so that a folder of iPhone pictures is reported, not taken for an empty one.
_OTHER_PICTURES = {".heic", ".heif", ".avif", ".bmp", ".gif", ".tif", ".tiff"}


def find_pictures(folder: Path | str) -> list[Path]:
    """The picture files that lie directly in `folder`, sorted by name.

    Suffixes count in upper and lower case. Hidden files (`._x.jpg`, `.DS_Store`) and sub-folders are passed over.
    Formats that `read_picture` refuses are found too, so that reading them tells why they cannot be used.

    Raises:
        DataError: `folder` is missing, not a folder, or may not be listed.
    """
    try:
        entries = sorted(Path(folder).iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be listed: {error.strerror}. Name a folder that holds pictures.") from error
    suffixes = FORMATS.keys() | _OTHER_PICTURES
    return [e for e in entries if e.suffix.lower() in suffixes and not e.name.startswith(".") and not e.is_dir()]


def read_picture(path: Path | str) -> Tensor:
    """The JPEG, PNG or WebP picture at `path` as an RGB ``uint8`` tensor of shape (3, H, W), upright.

    Grey and CMYK become RGB, transparency becomes white, 16 bits become 8 (the high byte), and the rotation that a
    camera notes in EXIF is carried out. Colour profiles are not applied, as in the public reference.

    Raises:
        DataError: the file cannot be read, is damaged, is no such picture, or has over 179 million pixels, where Pillow
            suspects a decompression bomb.
    """
    # Pillow, not torchvision.io: that drops transparency instead of compositing it, takes CMYK without Adobe's mark
    # for inverted, ignores EXIF in WebP, returns 16-bit PNG as uint16, and is deprecated since torchvision 0.29.
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Check the path and its permissions.") from error
    if not data:
        raise DataError(f"{path} is empty, 0 bytes. Copy it again from where it came, or take it out.")
    try:
        with Image.open(io.BytesIO(data), formats=_READ) as image:
            pixels = np.array(_as_rgb(image))
    except Image.UnidentifiedImageError as error:
        raise DataError(
            f"{path} is not a JPEG, PNG or WebP picture, in spite of its name. Convert it to JPEG "
            "(a phone's HEIC: export it as JPEG), or take it out."
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{path} has too many pixels: {error} Scale it down, or take it out.") from error
    except Exception as error:  # on damaged files Pillow raises nearly anything: OSError, SyntaxError, struct.error...
        raise DataError(
            f"{path} cannot be decoded ({type(error).__name__}: {error}). "
            "Copy it again from where it came, or take it out."
        ) from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def picture_sides(path: Path | str) -> tuple[int, int] | None:
    """Height and width of the picture at `path`, as its header has them; None if `read_picture` would refuse it."""
    try:
        with Image.open(path, formats=_READ) as image:
            return image.height, image.width
    except Exception:  # which one, `read_picture` will say
        return None


def _as_rgb(image: Image.Image) -> Image.Image:
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255; 16-bit colour it reads as it should
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "CMYK" and "adobe" not in image.info:  # Pillow inverts every CMYK JPEG, as only Adobe's need
        image = ImageChops.invert(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def write_picture(picture: Tensor, path: Path | str) -> None:
    """Write an RGB ``uint8`` tensor of shape (3, H, W) to `path`, in the format that the suffix names.

    The file is written beside `path` and then renamed, so that an interruption leaves no half picture. Folders that
    are missing are made. JPEG and WebP are written at quality 95.

    Raises:
        DataError: the suffix is unknown, or the file cannot be written there.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} cannot be written: its name must end in one of {', '.join(FORMATS)}.")
    encoded = io.BytesIO()  # encoded in memory, because Pillow hides the reason when a disk is full
    try:
        image = Image.fromarray(picture.permute(1, 2, 0).contiguous().cpu().numpy())
        image.save(encoded, FORMATS[path.suffix.lower()], quality=95)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be written ({error}).") from error
    with atomic_write(path, DataError) as part:
        part.write_bytes(encoded.getbuffer())
