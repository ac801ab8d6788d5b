"""Apples <-> oranges: scenes rendered with either fruit, so a translation can be compared with the truth.

A scene is a pure function of (seed, index): one or two fruits, their light and their background. Rendered with apples
it is a picture of domain A, with oranges the same scene in domain B. Training takes the two domains from different
scenes, so nothing is paired. The test scenes are rendered both ways, and only evaluation sees that.

Lengths here are in units of the picture, as in `painting`, or of a fruit's radius where that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from labkit.data.batches import UnpairedData
from labkit.data.textures import Dice, background, blend, colour, inside, noise, pixel_centres
from labkit.settings import plain
from labtrace.errors import check_at_least

SMALLEST = 16  # pixels: below, a fruit is a handful of pixels
TEST_SCENES = 64

# Where the scenes of each set begin: far enough apart never to meet.
FIRST_OF_A, FIRST_OF_B, FIRST_OF_TEST = 0, 2**40, 2**41

REACH = 1.4  # radii: a fruit, its stem included, stays within this distance of its centre


class Painted:
    """Training pictures of one fruit, each painted when it is first asked for, and kept.

    ``pictures[i]`` is a ``uint8`` tensor of shape (3, size, size). A slice of n pictures is one of shape
    (n, 3, size, size).
    """

    def __init__(self, painter: Painter, first: int, n: int, size: int, seed: int):
        self.painter, self.scenes, self.size, self.seed = painter, range(first, first + n), size, seed
        self.kept: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int | slice) -> Tensor:
        if isinstance(index, slice):
            return torch.stack([self[i] for i in range(len(self))[index]])
        scene = self.scenes[index]
        if scene not in self.kept:
            ((self.kept[scene],),), _ = _render([self.painter], [scene], self.size, self.seed)
        return self.kept[scene]


@dataclass(repr=False)
class FruitData(UnpairedData):
    """Rendered apples (A) and oranges (B), ``uint8``. Those to test on are two tensors of shape (N, 3, size, size).

    `test_a[i]` and `test_b[i]` show the same scene. No two training pictures do. `test_mask` is a ``bool`` tensor of
    shape (N, 1, size, size): True wherever either fruit covers at least a part of the pixel. Outside it the two
    pictures are equal.
    """

    train_a: Painted
    train_b: Painted
    test_a: Tensor
    test_b: Tensor
    test_mask: Tensor


def fruit(n: int = 1000, size: int = 64, seed: int = 0) -> FruitData:
    """`n` training pictures of each domain, painted as they are used, and 64 test scenes, of `size` x `size` pixels.

    Scene i does not depend on `n`, and is composed alike at every size.

    Raises:
        LabkitError: if `n` is below 1 or `size` below 16.

    Example:
        >>> data = labkit.fruit(n=2, size=32)
        >>> data.train_a[0].shape, data.train_a[0].dtype
        (torch.Size([3, 32, 32]), torch.uint8)
    """
    n, size, seed = plain("n", n, int), plain("size", size, int), plain("seed", seed, int)
    train_a, train_b = training_pictures(n, size, seed)
    test_a, test_b, test_mask = scenes(range(FIRST_OF_TEST, FIRST_OF_TEST + TEST_SCENES), size, seed)
    return FruitData("fruit", size, train_a, train_b, test_a, test_b, test_mask)


def training_pictures(n: int, size: int, seed: int) -> tuple[Painted, Painted]:
    """Apples and oranges to train on, `n` of each, none of them painted yet. Raises errors as `fruit` does."""
    check_at_least(1, n=n)
    check_at_least(SMALLEST, size=size)
    return Painted(_apple, FIRST_OF_A, n, size, seed), Painted(_orange, FIRST_OF_B, n, size, seed)


def scenes(indices: Sequence[int], size: int = 64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Render the same scenes with apples and with oranges. `fruit` trains apples on scenes 0, 1, 2...

    Returns:
        apples and oranges, two ``uint8`` tensors of shape (N, 3, size, size), and where they may differ, a
        ``bool`` tensor of shape (N, 1, size, size).

    Raises:
        LabkitError: if `size` is below 16.
    """
    check_at_least(SMALLEST, size=size)
    (apples, oranges), mask = _render([_apple, _orange], indices, size, seed)
    return apples, oranges, mask


def _render(painters: Sequence[Painter], indices: Sequence[int], size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Every scene once with each painter's fruit.

    Returns:
        ``uint8`` pictures of shape (painters, N, 3, size, size), and a ``bool`` mask of shape (N, 1, size, size) of
        the pixels that any of these fruits covers at least in part.
    """
    pictures = torch.empty(len(painters), len(indices), 3, size, size, dtype=torch.uint8)
    mask = torch.zeros(len(indices), 1, size, size, dtype=torch.bool)
    for i, index in enumerate(indices):
        scene = _Scene(Dice(f"fruit {seed} {index}"), size)
        for kind, painter in enumerate(painters):
            picture, covered = scene.with_fruit(painter)
            pictures[kind, i] = torch.from_numpy(picture)
            mask[i, 0] |= torch.from_numpy(covered > 0)
    return pictures, mask


@dataclass
class _Place:
    """A fruit's place: centre, radius, the angle its stem leans to the right (radians), and dice for the rest."""

    x: float
    y: float
    radius: float
    lean: float
    dice: Dice


class _Scene:
    """Everything that does not depend on the kind of fruit: light, places, background and shadows."""

    def __init__(self, dice: Dice, size: int):
        self.at = pixel_centres(size)
        x, y = dice("light x", -0.65, 0.65), dice("light y", -0.75, -0.25)
        self.light = (x, y, math.sqrt(max(0.05, 1 - x**2 - y**2)))  # towards the lamp: from above, and from the viewer
        self.places = _places(dice)
        self.empty = background(dice.part("background"), size)
        for place in self.places:
            self.empty *= self._shadow(place)

    def _shadow(self, place: _Place) -> ndarray:
        """The share of light left on the ground: a wide soft shadow away from the lamp, a dark one underneath."""

        def dark(strength: float, x: float, y: float, width: float, height: float) -> ndarray:
            across = np.exp(-(((self.at - x) / (width * place.radius)) ** 2))
            down = np.exp(-(((self.at - y) / (height * place.radius)) ** 2))
            return 1 - strength * down[:, None] * across

        x, foot = place.x - 0.4 * self.light[0] * place.radius, place.y + 0.9 * place.radius
        return dark(0.5, x, foot, 1.0, 0.3) * dark(0.4, place.x, foot, 0.6, 0.12)

    def with_fruit(self, painter: Painter) -> tuple[ndarray, ndarray]:
        """The picture, ``uint8`` of shape (3, size, size), and the share of each pixel that fruit covers."""
        picture, covered = self.empty.copy(), np.zeros(self.empty.shape[1:], np.float32)
        for place in self.places:
            view = _View(place, self.light, self.at)
            paint, coverage = painter(view)
            picture[view.window] = blend(picture[view.window], paint, coverage)
            covered[view.window[1:]] = np.maximum(covered[view.window[1:]], coverage)
        return (picture.clip(0, 1) * 255 + 0.5).astype(np.uint8), covered


def _places(dice: Dice) -> list[_Place]:
    """One fruit, or two side by side: then a smaller one further back, painted first."""
    front, back = dice.part("front"), dice.part("back")
    front_lean, back_lean = front("lean", -0.4, 0.4), back("lean", -0.5, 0.5)
    if dice("number") > 0.3:
        x, y, radius = front("x", 0.38, 0.62), front("y", 0.42, 0.62), front("radius", 0.22, 0.34)
        return [_Place(x, y, radius, front_lean, front)]
    side = 1 if dice("side") < 0.5 else -1
    front_x, back_x = 0.5 + side * front("x", 0.16, 0.22), 0.5 - side * back("x", 0.14, 0.24)
    front_y = front("y", 0.5, 0.66)
    back_y = front_y - back("y", 0.02, 0.18)
    return [
        _Place(back_x, back_y, back("radius", 0.14, 0.21), back_lean, back),
        _Place(front_x, front_y, front("radius", 0.17, 0.24), front_lean, front),
    ]


class _View:
    """The part of the picture around one fruit, seen from the fruit: its painter works on this.

    Attributes:
        window: that part of a picture of shape (3, H, W): an index for it, of shape (3, h, w).
        u, v: position of each pixel in radii from the centre, shape (h, w). The stem is at v = -1.
        light: direction of the lamp, along u, v and towards the viewer.
        pixel: width of a pixel in radii.
        down, across: positions for noise, shape (h,) and (w,), in [0, 1] over the whole window.
    """

    def __init__(self, place: _Place, light: tuple[float, float, float], at: ndarray):
        reach = REACH * place.radius
        rows, columns = (
            slice(near[0], near[-1] + 1)
            for near in (np.flatnonzero(np.abs(at - centre) < reach) for centre in (place.y, place.x))
        )
        self.window = (slice(None), rows, columns)
        self.dice = place.dice
        self.pixel = 1 / (len(at) * place.radius)
        x, y = (at[columns] - place.x) / place.radius, (at[rows] - place.y) / place.radius
        self.down, self.across = y / (2 * REACH) + 0.5, x / (2 * REACH) + 0.5
        sin, cos = math.sin(place.lean), math.cos(place.lean)
        self.u, self.v = x * cos + y[:, None] * sin, y[:, None] * cos - x * sin
        self.light = (light[0] * cos + light[1] * sin, light[1] * cos - light[0] * sin, light[2])

    def lit(self, u: ndarray, v: ndarray, height: ndarray) -> tuple[ndarray, ndarray]:
        """How a surface with this normal is lit, both in [0, 1]: diffusely, and as a mirror would be."""
        x, y, z = self.light
        half = math.sqrt(2 + 2 * z)  # length of light + direction of the viewer, who looks along the third axis
        diffuse = np.clip(u * x + v * y + height * z, 0, 1)
        mirrored = np.clip((u * x + v * y + height * (z + 1)) / half, 0, 1)
        return diffuse, mirrored

    def noise(self, name: str, cells: int, octaves: int = 2) -> ndarray:
        """Smooth noise with `cells` cells along the window, shape (h, w), in [-1, 1]."""
        return noise(self.dice, name, self.down, self.across, (cells, cells), octaves, 0.6)


# Paints a fruit: its paint, of shape (3, h, w), and the share of each pixel that it covers, of shape (h, w).
Painter = Callable[[_View], tuple[ndarray, ndarray]]


def _apple(view: _View) -> tuple[ndarray, ndarray]:
    """Paint of shape (3, h, w), and the share of each pixel that the apple and its stem cover, shape (h, w)."""
    u, v = view.u, view.v
    angle = np.abs(np.arctan2(u, -v))  # from the stem, 0, to the bottom, pi
    edge = (
        1.04
        - 0.17 * np.exp(-((angle / 0.42) ** 2))  # the hollow of the stem
        - 0.06 * (1 - np.cos(angle))  # narrower towards the bottom
        - 0.05 * np.exp(-(((math.pi - angle) / 0.4) ** 2))  # the hollow of the blossom
    )
    distance = np.sqrt(u * u + v * v) / edge
    height = np.sqrt(np.maximum(1 - distance**2, 0))
    diffuse, mirrored = view.lit(u / edge, v / edge, height)
    body = _apple_skin(view, height) * (0.28 + 0.85 * diffuse) + 0.62 * mirrored**45 + 0.08 * mirrored**8
    stem, on_stem = _stem(view)
    return blend(body, stem, on_stem), np.maximum(inside(1 - distance, view.pixel), on_stem)


def _apple_skin(view: _View, height: ndarray) -> ndarray:
    """Red or green, with a paler cheek that runs out in stripes from stem to bottom, and pale specks."""
    dice, u, v = view.dice.part("apple"), view.u, view.v
    if dice("green") < 0.18:
        skin = colour(dice("green hue", 0.19, 0.25), 0.72, 0.72)
    else:
        skin = colour(dice("hue", -0.03, 0.02), dice("saturation", 0.8, 0.93), dice("value", 0.6, 0.85))
    pale = colour(dice("pale hue", 0.1, 0.2), dice("pale saturation", 0.5, 0.75), dice("pale value", 0.75, 0.9))
    longitude = np.arctan2(u, height + 0.15)
    stripes = (
        0.22 * np.sin(17 * longitude + dice("stripes", 0, 6))
        + 0.18 * np.sin(31 * longitude + dice("finer stripes", 0, 6))
        + 0.25 * view.noise("stripes", 10)
    )
    cheek = 1.1 * (u * dice("cheek u", -0.9, 0.9) - 0.6 * v + dice("cheek", -0.45, 0.35)) + 0.5 * stripes
    skin = blend(skin, pale, 0.85 * np.clip(cheek, 0, 1))
    specks = np.clip(view.noise("specks", 60, octaves=1) * 4 - 2.8, 0, 1)
    skin = blend(skin, pale, 0.6 * specks * height)
    hollow = np.exp(-((u / 0.3) ** 2) - ((v + 0.8) / 0.17) ** 2)
    return skin * (1 - 0.6 * hollow)


def _stem(view: _View) -> tuple[ndarray, ndarray]:
    """A bent brown stem that grows out of the hollow, thicker and lighter at its end."""
    along = np.clip((-view.v - 0.68) / 0.55, 0, 1)
    sideways = view.u - view.dice("bend", -0.45, 0.45) * along**2
    thick = 0.05 + 0.025 * along**2
    on_stem = inside(thick - np.abs(sideways), view.pixel)
    on_stem = on_stem * inside(-view.v - 0.68, view.pixel) * inside(1.2 + view.v, view.pixel)
    return colour(0.08, 0.7, 0.3) * (0.6 + 0.7 * along), on_stem


def _orange(view: _View) -> tuple[ndarray, ndarray]:
    """Paint of shape (3, h, w), and the share of each pixel that the orange covers, shape (h, w)."""
    dice, u, v = view.dice.part("orange"), view.u, view.v
    distance = np.sqrt(u * u + v * v)
    height = np.sqrt(np.maximum(1 - distance**2, 0))
    blotches = view.noise("blotches", 22)
    tilt_u, tilt_v = (0.2 * height * view.noise(f"pores {axis}", 80, octaves=1) for axis in "uv")
    diffuse, mirrored = view.lit(u + tilt_u + 0.12 * blotches, v + tilt_v + 0.12 * blotches, height)
    skin = colour(dice("hue", 0.073, 0.098), dice("saturation", 0.9, 0.98), dice("value", 0.92, 1.0))
    skin = _navel(view, dice("navel", -0.35, 0.35), skin * (1 + 0.15 * blotches))
    body = skin * (0.3 + 0.8 * diffuse) + 0.2 * mirrored**12 + 0.12 * mirrored**40
    return body, inside(1 - distance, view.pixel)


def _navel(view: _View, place: float, skin: ndarray) -> ndarray:
    """The green star where the stem was, on darker skin."""
    u, v = view.u - place, view.v + 0.62
    distance = np.sqrt(u * u + (1.35 * v) ** 2)
    star = 0.13 + 0.045 * np.cos(5 * np.arctan2(v, u))
    skin = skin * (1 - 0.25 * np.exp(-((distance / 0.25) ** 2)))
    return blend(skin, colour(0.205, 0.62, 0.42), inside(star - distance, view.pixel))
