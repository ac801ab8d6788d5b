"""The painter's tools: dice that always fall the same way, smooth noise, soft edges, and backgrounds.

Positions are in units of the picture: (0, 0) is its top left corner, (1, 1) its bottom right one, y points down.
Pictures are ``float32`` of shape (3, H, W) in [0, 1], colours the same of shape (3, 1, 1). Nothing here
depends on the number of pixels, except that details too fine to show are left out: a scene is the same at every size.
"""

from __future__ import annotations

import math
from colorsys import hsv_to_rgb
from hashlib import shake_128

import numpy as np
from numpy import ndarray


class Dice:
    """Random numbers by name: `dice("light")` depends on the dice's key and on the name, and on nothing else.

    A hash of both, so it is the same on every machine and in every version of Python and numpy, and one more
    number drawn somewhere does not change all the others, as it would with a generator that has a state.
    """

    def __init__(self, key: str):
        self.key = key

    def part(self, name: str) -> Dice:
        """Separate dice for one part of the scene."""
        return Dice(f"{self.key}/{name}")

    def __call__(self, name: str, low: float = 0.0, high: float = 1.0) -> float:
        """A number from [`low`, `high`)."""
        return low + (high - low) * int.from_bytes(self._bytes(name, 4), "little") / 2**32

    def table(self, name: str, rows: int, columns: int) -> ndarray:
        """``float32`` numbers from [-1, 1], of shape (rows, columns)."""
        numbers = np.frombuffer(self._bytes(name, rows * columns), np.uint8).reshape(rows, columns)
        return numbers.astype(np.float32) / 127.5 - 1

    def _bytes(self, name: str, count: int) -> bytes:
        return shake_128(f"{self.key}/{name}".encode()).digest(count)


def pixel_centres(size: int) -> ndarray:
    """Where the `size` pixels of a row lie: ``float32`` of shape (size,), in (0, 1)."""
    return (np.arange(size, dtype=np.float32) + 0.5) / size


def noise(
    dice: Dice, name: str, y: ndarray, x: ndarray, cells: tuple[int, int], octaves: int = 3, fall: float = 0.5
) -> ndarray:
    """A smooth random field: random numbers on a coarse grid, plus finer and weaker ones, blurred into each other.

    Args:
        y, x: where to evaluate it, in [0, 1], of shape (H,) and (W,).
        cells: of the coarsest grid, along y and x. Each further octave has twice as many.
        fall: strength of an octave relative to the one before.

    Returns:
        ``float32`` of shape (H, W), nearly always in [-1, 1], mean 0, standard deviation about 0.3.
    """
    field = np.zeros((len(y), len(x)), np.float32)
    strengths = [fall**octave for octave in range(octaves)]
    for octave, strength in enumerate(strengths):
        down, across = cells[0] << octave, cells[1] << octave
        if max(down * (y[1] - y[0]), across * (x[1] - x[0])) > 1:  # finer than the pixels: to the eye, its mean, 0
            break
        numbers = dice.table(f"{name} {octave}", down + 3, across + 3)
        field += strength * (_spline(y, down) @ numbers @ _spline(x, across).T)
    return field * (1.3 / sum(strengths))


def _spline(positions: ndarray, cells: int) -> ndarray:
    """Weights of the grid points -1 ... cells + 1 at each position: a quadratic B-spline, so no grid shows."""
    grid = np.arange(-1, cells + 2, dtype=np.float32)
    distance = np.abs(positions[:, None] * cells - grid)
    return 0.5 * np.maximum(1.5 - distance, 0) ** 2 - 1.5 * np.maximum(0.5 - distance, 0) ** 2


def colour(hue: float, saturation: float, value: float) -> ndarray:
    """A colour of shape (3, 1, 1). `hue` is a part of the colour circle (0 red, 1/3 green, 2/3 blue)."""
    return np.array(hsv_to_rgb(hue % 1.0, saturation, value), np.float32).reshape(3, 1, 1)


def blend(under: ndarray | np.float32, over: ndarray, share: ndarray) -> ndarray:
    """`under` where `share` is 0, `over` where it is 1."""
    return under + (over - under) * share


def inside(depth: ndarray, pixel: float) -> ndarray:
    """How much of each pixel a shape covers, in [0, 1]: `depth` is the distance inwards from its edge, in
    the units in which a pixel is `pixel` wide. Without this, edges are staircases."""
    return np.clip(depth / pixel + 0.5, 0, 1)


def background(dice: Dice, size: int) -> ndarray:
    """One of five kinds of background, in colours of its own: a picture of shape (3, size, size)."""
    kinds = (_wall, _wood, _leaves, _table, _gingham)
    return kinds[int(dice("kind") * len(kinds))](dice, pixel_centres(size))


def _wall(dice: Dice, at: ndarray) -> ndarray:
    """Blotchy plaster, or a cloth out of focus."""
    first, second = _two_colours(dice)
    blotches = noise(dice, "blotches", at, at, (3, 3), octaves=4)
    grain = noise(dice, "grain", at, at, (9, 9), fall=0.7)
    return blend(first, second, 0.5 + 0.6 * blotches) * (1 + 0.18 * grain)


def _wood(dice: Dice, at: ndarray) -> ndarray:
    """Boards that lie from left to right: year rings, fibres, and dark joints between the boards."""
    light = colour(dice("light hue", 0.05, 0.11), dice("light saturation", 0.25, 0.6), dice("light value", 0.45, 0.85))
    dark = colour(dice("dark hue", 0.04, 0.09), dice("dark saturation", 0.35, 0.7), dice("dark value", 0.25, 0.5))
    y = at[:, None]
    bend = noise(dice, "bend", at, at, (4, 1), octaves=2)
    rings = np.sin(dice("rings", 30, 70) * y + 5 * bend)
    fibres = noise(dice, "fibres", at, at, (24, 2), octaves=3, fall=0.8)
    boards = noise(dice, "boards", at, at, (5, 1), octaves=1)
    wood = blend(light, dark, 0.5 + 0.25 * rings + 0.4 * fibres + 0.25 * boards)
    place = y * dice("boards", 2.0, 3.5) + dice("first joint")
    joint = np.maximum(1 - np.abs(place - np.floor(place) - 0.5) * 40, 0)
    return wood * (1 - 0.5 * joint)


def _leaves(dice: Dice, at: ndarray) -> ndarray:
    """Foliage or grass, out of focus."""
    shade = colour(dice("shade hue", 0.22, 0.38), dice("shade saturation", 0.35, 0.75), dice("shade value", 0.2, 0.5))
    sunny = colour(dice("sunny hue", 0.2, 0.33), dice("sunny saturation", 0.3, 0.6), dice("sunny value", 0.5, 0.9))
    clumps = noise(dice, "clumps", at, at, (3, 3), octaves=4)
    leaves = noise(dice, "leaves", at, at, (8, 8), octaves=3, fall=0.6)
    return blend(shade, sunny, np.clip(0.5 + 1.4 * leaves, 0, 1)) * (1 + 0.3 * clumps)


def _table(dice: Dice, at: ndarray) -> ndarray:
    """A wooden table before a plain wall. Its far edge stays above the foot of every fruit."""
    y = at[:, None]
    wall, _ = _two_colours(dice)
    blotches = noise(dice, "blotches", at, at, (3, 3), octaves=4)
    wall = wall * (1 - 0.25 * y) * (1 + 0.15 * blotches)
    wood = _wood(dice, at) * (0.8 + 0.3 * y)
    return blend(wall, wood, inside(y - dice("far edge", 0.28, 0.44), 2 / len(at)))


def _gingham(dice: Dice, at: ndarray) -> ndarray:
    """A chequered table cloth."""
    x, y = at, at[:, None]
    _, dye = _two_colours(dice)
    turn, frequency = dice("turn", -0.5, 0.5), dice("frequency", 12, 26)
    warp, weft = (
        1 / (1 + np.exp(-6 * np.sin(frequency * thread)))
        for thread in (x * math.cos(turn) + y * math.sin(turn), y * math.cos(turn) - x * math.sin(turn))
    )
    folds = noise(dice, "folds", at, at, (3, 3), octaves=4)
    return blend(np.float32(0.92), dye, (warp + weft) / 2) * (0.92 + 0.17 * folds)


def _two_colours(dice: Dice) -> tuple[ndarray, ndarray]:
    """A light and a darker one that go together."""
    hue = dice("hue")
    light = colour(hue, dice("light saturation", 0.08, 0.5), dice("light value", 0.35, 0.95))
    dark = colour(
        hue + dice("hue step", -0.12, 0.12), dice("dark saturation", 0.1, 0.55), dice("dark value", 0.25, 0.8)
    )
    return light, dark
