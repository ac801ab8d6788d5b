"""Kinds of pictures, by each way in: does a training see the same picture, or does labkit refuse it in a sentence?

    python benchmarks/gates/pictures.py [part+part of a name ...] [--bad] [--list] [--timeout 60]

One step of `labkit.fit`, of which a class keeps the pictures that it was given. "right": within one level of 255 of
what the picture shows. "refused": a `labkit.LabkitError`. "warned": another picture, but a warning said so. "WRONG":
another picture, silently. "RAW": another exception.

What pictures show: transparency over white, EXIF's rotation carried out for files and PIL pictures, 16 bits over the
whole range of 16 bits. Where no number says what is white (floats outside of [-1, 1], int32, 12 bits in 16), labkit can
only refuse. Arrays and tensors carry no mode: their truth is `np.asarray` of the picture.
"""

import sys

sys.path.insert(0, sys.path.pop(0).removesuffix("/gates"))  # this folder's numbers.py would hide Python's

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gates import gate
from PIL import Image, ImageCms

import labkit

SIZE = 32
Truth = list[np.ndarray]  # pictures (H, W, 3) in [0, 255], one for each sensible reading; none: refuse
y, x = np.mgrid[0:SIZE, 0:SIZE]
COLOURS = np.stack([8 * x, 8 * y, 248 - 4 * x - 4 * y], 2).astype(np.uint8)
GREY = (4 * x + 4 * y).astype(np.uint8)
RGB = Image.fromarray(COLOURS)
SRGB, LAB = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
MASK = Image.fromarray(np.where((x - 16) ** 2 + (y - 16) ** 2 < 100, 255, 64 + y).astype(np.uint8))


def with_alpha(mode: str) -> Image.Image:
    picture = RGB.convert("RGB" if mode == "RGBA" else "L")
    picture.putalpha(MASK)
    return picture


def palette(transparent: bool) -> Image.Image:
    picture = RGB.quantize(32)
    if transparent:
        picture.info["transparency"] = picture.getpixel((3, 3))
    return picture


def pa() -> Image.Image:
    picture = RGB.quantize(32).convert("PA")
    picture.putalpha(MASK)
    return picture


def rotated() -> Image.Image:
    picture = RGB.copy()
    picture.getexif()[0x0112] = 6
    return picture


def shown(picture: Image.Image) -> Truth:
    """What a viewer shows: upright, over white, in RGB."""
    turn = {6: Image.Transpose.ROTATE_270}.get(picture.getexif().get(0x0112, 1))
    picture = picture.transpose(turn) if turn is not None else picture
    if picture.mode in ("LA", "RGBA", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return [np.asarray(picture.convert("RGB"), np.float64)]


def from_lab(picture: Image.Image) -> Truth:
    return [np.asarray(ImageCms.profileToProfile(picture, LAB, SRGB, outputMode="RGB"), np.float64)]


def nothing(picture: Image.Image) -> Truth:
    return []


def by(factor: float, shift: float = 0.0) -> Callable[[Any], Truth]:
    """The truth of numbers that are `factor` times a level of 255, and `shift`."""

    def truth(picture: Any) -> Truth:
        levels = (np.asarray(picture, np.float64) - shift) / factor
        return [np.repeat(levels[..., None], 3, 2) if levels.ndim == 2 else levels]

    return truth


WIDE = GREY.astype(np.uint16) * 257
UNIT = GREY.astype(np.float32) / 255
HOLES = np.where(GREY > 220, np.nan, UNIT).astype(np.float32)
# The picture, the suffix of a file that keeps it (none: no file does), what it shows, how it is saved.
PICTURES: dict[str, tuple[Callable[[], Image.Image], str, Callable[[Any], Truth], dict[str, Any]]] = {
    "1": (lambda: RGB.convert("1"), "png", shown, {}),
    "L": (lambda: RGB.convert("L"), "png", shown, {}),
    "LA": (lambda: with_alpha("LA"), "png", shown, {}),
    "P": (lambda: palette(False), "png", shown, {}),
    "P in a GIF": (lambda: palette(False), "gif", shown, {}),
    "P, transparent": (lambda: palette(True), "png", shown, {"transparency": 3}),
    "PA": (pa, "", shown, {}),
    "RGB": (lambda: RGB, "png", shown, {}),
    "RGB, colour key": (lambda: RGB, "png", shown, {"transparency": tuple(map(int, COLOURS[3, 3]))}),
    "RGBA, opaque": (lambda: RGB.convert("RGBA"), "png", shown, {}),
    "RGBA, transparent": (lambda: with_alpha("RGBA"), "png", shown, {}),
    "RGBA in a WebP": (lambda: with_alpha("RGBA"), "webp", shown, {"lossless": True}),
    "RGBX": (lambda: RGB.convert("RGBX"), "", shown, {}),
    "CMYK": (lambda: RGB.convert("CMYK"), "jpg", shown, {"quality": 100}),
    "YCbCr": (lambda: RGB.convert("YCbCr"), "jpg", shown, {"quality": 100}),
    "YCbCr in memory": (lambda: RGB.convert("YCbCr"), "", shown, {}),
    "LAB": (lambda: ImageCms.profileToProfile(RGB, SRGB, LAB, outputMode="LAB"), "tif", from_lab, {}),
    "HSV": (lambda: RGB.convert("HSV"), "", shown, {}),
    "I, 0 to 65535": (lambda: Image.fromarray(WIDE.astype(np.int32)), "tif", by(257), {}),
    "I, 0 to 255": (lambda: Image.fromarray(GREY.astype(np.int32)), "tif", by(1), {}),
    "I;16": (lambda: Image.fromarray(WIDE), "tif", by(257), {}),
    "I;16 PNG": (lambda: Image.fromarray(WIDE), "png", by(257), {}),
    "I;16, 12 bits": (lambda: Image.fromarray(GREY.astype(np.uint16) * 16), "png", nothing, {}),
    "F, 0 to 1": (lambda: Image.fromarray(UNIT), "tif", by(1 / 255), {}),
    "F, 0 to 255": (lambda: Image.fromarray(UNIT * 255), "tif", by(1), {}),
    "F, -1 to 1": (lambda: Image.fromarray(UNIT * 2 - 1), "tif", by(2 / 255, -1), {}),
    "F with NaN": (lambda: Image.fromarray(HOLES), "tif", nothing, {}),
    "EXIF-rotated": (rotated, "jpg", shown, {"quality": 100, "exif": True}),
    "EXIF-rotated PNG": (rotated, "png", shown, {"exif": True}),
    "animated GIF": (lambda: palette(False), "gif", shown, {"save_all": True, "append": True}),
    "animated PNG": (lambda: RGB, "png", shown, {"save_all": True, "append": True}),
    "TIFF of two pages": (lambda: RGB, "tif", shown, {"save_all": True, "append": True}),
    "1 pixel high": (lambda: RGB.resize((SIZE, 1)), "png", nothing, {}),
    "constant": (lambda: Image.new("RGB", (SIZE, SIZE), (90, 90, 90)), "png", shown, {}),
    "black": (lambda: Image.new("RGB", (SIZE, SIZE)), "png", shown, {}),
}
ARRAYS = {"1", "L", "LA", "RGB", "RGBA, opaque", "RGBA, transparent", "CMYK", "I, 0 to 65535", "I, 0 to 255", "I;16"}
ARRAYS |= {"I;16, 12 bits", "F, 0 to 1", "F, 0 to 255", "F, -1 to 1", "F with NaN", "1 pixel high", "constant", "black"}


def stored(name: str, path: Path) -> Image.Image:
    """The picture of this name, as `Image.open` gives it, if a file can keep it."""
    make, suffix, _, how = PICTURES[name]
    picture, how = make(), dict(how)
    if not suffix:
        return picture
    if how.pop("append", False):
        how["append_images"] = [picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)]
    if how.pop("exif", False):
        how["exif"] = picture.getexif()
    path.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        picture.save(path / f"{number}.{suffix}", **how)
    return Image.open(path / f"0.{suffix}")


class Pairs(torch.utils.data.Dataset):
    def __init__(self, of_a: Any, of_b: Any) -> None:
        self.items = [(of_a, of_b)] * 2

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def see(data: Any, channels: tuple[int, int], domain: str) -> np.ndarray:
    """The first picture of a domain that a step is given: (H, W, C), in [0, 255]."""
    seen: list[dict[str, torch.Tensor]] = []

    class Looking(labkit.Step):
        def run(self, batch: Any) -> Any:
            seen.append({name: value.clone() for name, value in batch.items() if isinstance(value, torch.Tensor)})
            return super().run(batch)

        def inputs(self, real_a: torch.Tensor, real_b: torch.Tensor) -> Any:
            seen.append({"real_a": real_a.clone(), "real_b": real_b.clone()})
            return super().inputs(real_a, real_b)

    same = channels[0] == channels[1]
    model = labkit.CycleGAN(
        "resnet_3blocks", "n_layers", 4, 4, 1, channels_a=channels[0], channels_b=channels[1],
        lambda_identity=0.5 if same else 0.0,
    )  # fmt: skip
    labkit.fit(labkit.make_step(model, Looking), data, 1)
    return ((seen[0][f"real_{domain}"][0].permute(1, 2, 0).numpy().astype(np.float64)) + 1) * 127.5


def verdict(make_data: Callable[[], Any], channels: tuple[int, int], domain: str, truth: Truth) -> gate.Result:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got = see(make_data(), channels, domain)
        except labkit.LabkitError as error:
            return "refused", gate.sentence(error)
        except Exception as error:
            return "RAW", gate.sentence(error)
    said = " / ".join(f"{type(one.message).__name__}: {one.message}" for one in caught if "/torch/" not in one.filename)
    if got.shape[2] == 1:  # both ways to make grey of colours are sensible: Pillow's weights are ITU-R 601's
        truth = [(one @ [0.299, 0.587, 0.114])[..., None] if one.shape[-1] == 3 else one for one in truth]
    differences = [np.abs(got - one).max() if got.shape == one.shape else np.inf for one in truth]
    if differences and min(differences) <= 1.01 + (got.shape[2] == 1) * 0.5:
        return "right", said
    extreme = ((got < 0.5) | (got > 254.5)).mean()
    off = f"off by {min(differences):.0f} of 255" if differences else "shown though nobody can know its white"
    what = f"{off}, levels {got.min():.0f} to {got.max():.0f}, {extreme:.0%} at an end, shape {got.shape}"
    return ("warned" if said else "WRONG"), f"{what} {said}"


def picture(name: str, way: str) -> gate.Result:
    as_pil = stored(name, Path("photos/trainA"))
    truth = PICTURES[name][2](as_pil)
    channels = 1 if way.endswith("1") else 3
    if way.startswith("folder"):
        Path("photos/trainB").mkdir(parents=True)
        for number in range(2):
            RGB.save(f"photos/trainB/{number}.png")
        both = {"preprocess": "crop", "load_size": SIZE, "flip": False, "channels": (channels, channels)}
        return verdict(lambda: labkit.folders("photos", SIZE, **both), (channels, channels), "a", truth)
    if way == "PIL in B":
        return verdict(lambda: Pairs(RGB, as_pil), (3, 3), "b", truth)
    if way.startswith("PIL"):
        other = RGB if channels == 3 else RGB.convert("L")
        return verdict(lambda: Pairs(as_pil, other), (channels, channels), "a", truth)
    as_array = np.array(as_pil)
    if as_pil.mode in ("LA", "CMYK"):
        truth = []  # nobody can know what the further channels are
    elif as_pil.mode == "RGBA":
        truth = []
    elif as_pil.mode == "1":
        truth = by(1 / 255)(as_array)
    return array(as_array, channels, way.split()[0], truth)


def array(values: np.ndarray, channels: int, way: str, truth: Truth) -> gate.Result:
    """The verdict on an array (H, W) or (H, W, C), or on the tensor (C, H, W) of it, in A or in both domains."""
    item: Any = values
    if way != "array":
        item = torch.from_numpy(np.ascontiguousarray(values))
        item = item[None] if item.ndim == 2 else item.permute(2, 0, 1)
    other = labkit.to_float(torch.from_numpy(np.ascontiguousarray(COLOURS)).permute(2, 0, 1))[:channels]
    other = item if way == "both" else other
    return verdict(lambda: Pairs(item, other), (channels, channels), "a", truth)


RANGES: dict[str, tuple[float, float]] = {"[-1, 1]": (2 / 255, -1), "[0, 1]": (1 / 255, 0), "[0, 255]": (1, 0)}
TYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def numbers(kind: str, way: str, channels: int, layout: str) -> gate.Result:
    source = COLOURS if layout == "HWC" else GREY
    if kind == "uint8":
        values, truth = source, by(1)(source)
    elif kind == "int64":
        values, truth = source.astype(np.int64), by(1)(source)
    elif kind == "uint16":
        values, truth = source.astype(np.uint16) * 257, by(1)(source)
    elif kind == "bool":
        values, truth = source > 100, by(1)((source > 100) * 255)
    elif kind == "float32 with NaN":
        values, truth = np.where(source > 220, np.nan, source / 127.5 - 1).astype(np.float32), []
    else:
        name, limits = kind.split(" ", 1)
        factor, shift = RANGES[limits]
        values = (source.astype(np.float64) * factor + shift).astype(TYPES[name])
        truth = by(1)(source)
    if layout == "HWC" and channels == 1:
        truth = []
    return array(values, channels, way, truth)


WAYS = ("folder 3", "folder 1", "PIL 3", "PIL 1", "PIL in B", "array 3", "array 1", "tensor 3", "tensor 1")
KINDS = [
    "uint8",
    "int64",
    "uint16",
    "bool",
    "float32 with NaN",
    *(f"{name} {limits}" for name in TYPES for limits in RANGES),
]
CASES = {
    f"{name}: {way}": functools.partial(picture, name, way)
    for name, (_, suffix, _, _) in PICTURES.items()
    for way in WAYS
    if (suffix or not way.startswith("folder")) and (name in ARRAYS or way[0] not in "at")
} | {
    f"{kind}: {way}, {layout}, {channels} channels": functools.partial(numbers, kind, way, channels, layout)
    for kind in KINDS
    for way in ("array", "tensor", "both")
    for channels, layout in ((3, "HWC"), (3, "HW"), (1, "HW"))
}

if __name__ == "__main__":
    gate.run(CASES, __doc__, 60)
