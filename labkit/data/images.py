"""Picture files: found in a folder, read as tensors, written whole or not at all."""

from __future__ import annotations

import io
import os
import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageChops, ImageOps
from torch import Tensor

from labkit.data.batches import WITHIN
from labkit.errors import DataError, LabkitError, shown
from labtrace.files import atomic_write

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}  # read and written
IN_FILES = (1, 3)  # channels: grey, or RGB
READABLE = "JPEG, PNG, WebP, BMP, TIFF or PPM"
DECODED = [*FORMATS.values(), "BMP", "TIFF", "PPM"]
UNUSED = "16 bits, of which the upper two are never used: scale its numbers up to 65535, or to 255 and 8 bits"
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
        raise DataError(f"{shown(error.filename)} cannot be listed: {error.strerror}. Name a folder of pictures.")

    for place, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        if os.path.realpath(place) in searched:
            folders.clear()
            continue
        searched.add(os.path.realpath(place))
        folders[:] = sorted(name for name in folders if name[0] != ".")
        pictures += [Path(place, name) for name in files if name[0] != "." and Path(name).suffix.lower() in SUFFIXES]
    return sorted(pictures)


def read_picture(given: Any, channels: int = 3, place: str = "") -> Tensor:
    """A picture of a file, of Pillow, of NumPy or of PyTorch, upright: (3, H, W) in RGB or (1, H, W) in grey.

    The same picture gives the same tensor, whichever way it comes: ``uint8``, or floats in [-1, 1] as they are. Grey,
    CMYK and palettes become RGB, or with one channel grey. 16 bits become 8 (the high byte), the rotation that a camera
    notes in EXIF is carried out, and transparency becomes white, with one warning. Colour profiles are not applied, as
    in the public reference.

    Args:
        given: the path of a file of a type in `READABLE`, a picture of Pillow, an array (H, W) or (H, W, C), as Pillow
            and OpenCV have them, or a tensor (C, H, W). Whole numbers in these have 8 or 16 bits.
        channels: 3, 1, or of arrays and tensors any number. Of these two only grey becomes RGB.
        place: begins the message of an error.

    Raises:
        DataError: the file cannot be read, is damaged, or is no such picture. Or its colours are not certain: several
            pages or frames, a TIFF of grey with more than 8 bits, 16 bits of which the upper two are never used, or a
            TIFF whose fourth channel need not be transparency. Or it has over 179 million pixels, where Pillow suspects
            a decompression bomb. Or it has another shape, or floats that are not in [-1, 1].
        LabkitError: the memory does not suffice.
    """
    # Pillow, not torchvision.io: that drops transparency instead of compositing it, ignores EXIF in WebP, and is
    # deprecated since torchvision 0.29.
    file = isinstance(given, Path | str)
    name = place + (shown(given) if file else type(given).__name__)
    try:
        if file and Path(given).exists() and not Path(given).is_file():  # who opens a pipe waits for its other end
            raise ValueError("no file, but a folder, a pipe, a socket or a device")
        with Image.open(given, formats=DECODED) if file else nullcontext(given) as picture:
            if isinstance(picture, Image.Image) and channels in IN_FILES:
                return _of_pillow(picture, channels)
            return _of_numbers(picture, channels)
    except MemoryError as error:  # the picture may be a good one, so it is not left out as damaged ones are
        raise LabkitError(f"{name}: out of memory while this picture was decoded. Use smaller pictures.") from error
    except Exception as error:  # on damaged files Pillow raises nearly anything: OSError, SyntaxError, struct.error...
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        if not file:
            raise DataError(f"{name} cannot be used as a picture ({reason}).") from error
        raise DataError(
            f"{name} cannot be read as a {READABLE} picture ({reason}): export it as JPEG, or take it out."
        ) from error


def _of_numbers(given: Any, channels: int) -> Tensor:
    """An array (H, W) or (H, W, C), or a tensor (C, H, W), as a tensor of ``uint8`` or floats."""
    numbers, possible = given, (1, 3) if channels == 3 else (channels,)
    if isinstance(given, np.ndarray) and given.ndim in (2, 3) and given.shape[0] not in possible:
        native = np.atleast_3d(given).astype(given.dtype.newbyteorder("="))  # a copy, since some cannot be written to
        numbers = torch.from_numpy(native).permute(2, 0, 1)
    if not isinstance(numbers, Tensor) or numbers.ndim != 3 or len(numbers) not in possible:
        raise ValueError(f"shape {np.shape(given)}, but tensors have ({channels}, H, W), arrays (H, W, {channels})")
    if numbers.is_floating_point():
        if not (most := numbers.abs().max().item()) <= WITHIN:
            raise ValueError(f"it holds {most:g}, but floats run from -1, black, to 1, white: see labkit.to_float")
    elif numbers.dtype == torch.bool:
        numbers = 255 * numbers.to(torch.uint8)
    elif numbers.dtype != torch.uint8:
        whole = numbers.to(torch.int64)
        if whole.min() < 0 or not 1 << 14 <= whole.max() < 1 << 16:
            raise ValueError(f"{numbers.dtype} from {whole.min()} to {whole.max()}: {UNUSED}")
        numbers = (whole >> 8).to(torch.uint8)
    return numbers.expand(channels, -1, -1)


def _of_pillow(image: Image.Image, channels: int) -> Tensor:
    """The picture, upright. Raises `ValueError` where Pillow would make wrong colours, or drop pages."""
    stored = str([tile.args for tile in getattr(image, "tile", [])])  # how the file holds its numbers
    tiff = image.format == "TIFF"
    if image.mode == "F" or image.mode[0] == "I" and tiff:
        raise ValueError(f"pixels of mode {image.mode}, more than 8 bits")  # of which none is certain to be white
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:  # a camera's MPO has a preview of the first
        raise ValueError("several pages or frames")  # Pillow would take the first
    inverted = image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied for nothing
        image = ImageOps.exif_transpose(image)
    if image.mode[0] == "I":  # 16-bit grey, which Pillow would clip at 255
        image = Image.fromarray(_of_numbers(np.asarray(image), 1)[0].numpy())
    if inverted:  # Pillow inverts every CMYK JPEG, as only Adobe's need
        image = ImageChops.invert(image)
    if re.search(";16[BL]|65535", stored) and np.asarray(image.convert("RGB")).max() < 64:
        raise ValueError(UNUSED)
    if tiff and image.mode in ("LA", "RGBA") and np.asarray(image)[..., -1].min() < 255 and "RGBa" not in stored:
        raise ValueError("one channel more than its colours, perhaps infrared: save its colours alone")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema()[0] != 255:
            warnings.warn("what is transparent in pictures becomes white", stacklevel=1)
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB")
    pixels = np.array(image if channels == 3 else image.convert("L"))
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], channels)).permute(2, 0, 1)


def profile_of(path: Path | str, channels: int) -> bytes | None:
    """The ICC profile of a picture that can be read, if it fits a result of so many channels.

    A grey profile fits grey alone. The profile of CMYK or of CIELAB fits neither grey nor RGB.
    """
    with Image.open(path) as image:
        profile = image.info.get("icc_profile") or b""
        fits = profile[16:20] == {1: b"GRAY", 3: b"RGB "}[channels] and image.mode not in ("CMYK", "LAB", "YCbCr")
    return profile if fits else None


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
