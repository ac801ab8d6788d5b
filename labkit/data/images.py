"""Picture files: found in a folder, read as tensors, written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, ImageOps, TiffImagePlugin
from torch import Tensor

from labkit.errors import DataError, LabkitError
from labkit.files import atomic_write

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}  # read and written
_ONLY_READ = {".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM"}
_READ = sorted({*FORMATS.values(), *_ONLY_READ.values()})
READABLE = "JPEG, PNG, WebP, BMP, TIFF or PPM"
# Tags of a TIFF, and the values that matter here.
NEW_SUBFILE_TYPE, REDUCED = 254, 1
PHOTOMETRIC, WHITE_IS_ZERO = 262, 0
# Found but not read, so that a folder of iPhone pictures is reported, not taken for an empty one.
_OTHER_PICTURES = {".heic", ".heif", ".avif", ".gif"}


def find_pictures(folder: Path | str, nested: bool = True) -> list[Path]:
    """The picture files in `folder`, sorted by name; if `nested`, also those in its sub-folders, as in the reference.

    Suffixes count in upper and lower case. Hidden files and folders (`._x.jpg`, `.thumbnails`) are passed over. Links
    are followed, but no folder is searched twice. Formats that `read_picture` refuses are found too, so that reading
    them tells why they cannot be used.

    Raises:
        DataError: `folder`, or one in it, is missing, not a folder, or may not be listed.
    """
    suffixes = FORMATS.keys() | _ONLY_READ.keys() | _OTHER_PICTURES
    found: list[Path] = []
    searched: set[Path] = set()

    def search(folder: Path) -> None:
        searched.add(folder.resolve())
        for entry in _entries(folder):
            if entry.is_dir():
                if nested and entry.resolve() not in searched:
                    search(entry)
            elif entry.suffix.lower() in suffixes:
                found.append(entry)

    search(Path(folder))
    return found


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder that are not hidden, sorted by name."""
    try:
        return sorted((e for e in folder.iterdir() if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be listed: {error.strerror}. Name a folder that holds pictures.") from error


def read_picture(path: Path | str) -> Tensor:
    """The JPEG, PNG, WebP, BMP, TIFF or PPM picture at `path` as an RGB ``uint8`` tensor of shape (3, H, W), upright.

    Grey and CMYK become RGB, transparency becomes white, 16 bits become 8 (the high byte), and the rotation that a
    camera notes in EXIF is carried out. Colour profiles are not applied, as in the public reference.

    Raises:
        DataError: the file cannot be read, is damaged, is no such picture, has several pages, has numbers of which
            none is certain to be white (floats, 32 bits), or has over 179 million pixels, where Pillow suspects a
            decompression bomb.
        LabkitError: the memory does not suffice.
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
            if reason := _unsuited(image):
                raise DataError(f"{path} {reason}")
            pixels = np.array(_as_rgb(image))
    except DataError:
        raise
    except MemoryError as error:  # the picture may be a good one, so it is not left out as damaged ones are
        raise LabkitError(
            f"{path}: out of memory while this picture was decoded. Close other programs, or use smaller pictures."
        ) from error
    except Image.UnidentifiedImageError as error:
        raise DataError(
            f"{path} is not a {READABLE} picture that can be read, in spite of its name. Convert it to JPEG "
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


def _unsuited(image: Image.Image) -> str | None:
    """The reason not to use a picture that can be decoded; None if there is none."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        pages = 0
        for page in range(image.n_frames):
            image.seek(page)
            pages += not image.tag_v2.get(NEW_SUBFILE_TYPE, 0) & REDUCED
        image.seek(0)
        if pages > 1:
            return f"has {pages} pages. Save each of them as a picture of its own, or take it out."
    if image.mode == "F" or image.mode == "I" and image.format == "TIFF":
        kind = "floating-point" if image.mode == "F" else "32-bit"
        return f"has {kind} numbers, of which none is known to be white. Convert it to 8 or 16 bits, or take it out."
    return None


def _as_rgb(image: Image.Image) -> Image.Image:
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255; 16-bit colour it reads as it should
        levels = (np.asarray(image) >> 8).astype(np.uint8)
        if isinstance(image, TiffImagePlugin.TiffImageFile) and image.tag_v2.get(PHOTOMETRIC) == WHITE_IS_ZERO:
            levels = 255 - levels  # Pillow does this for 8 bits only
        image = Image.fromarray(levels)
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        # Pillow inverts every CMYK JPEG, as only Adobe's need.
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
