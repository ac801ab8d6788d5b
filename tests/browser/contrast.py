"""Whether a figure's text can be read on the background that it really has: pixels of a screenshot."""

import re
from typing import Any

from PIL import Image

LEAST = 4.5  # WCAG 2.2, level AA


def luminance(colour: tuple[float, ...]) -> float:
    """Of red, green and blue from 0 to 255 (WCAG 2.2, "relative luminance")."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (one / 255 for one in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """From 1, the same, to 21, black on white."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def illegible(window: Image.Image, texts: list[dict[str, Any]]) -> list[str]:
    """The texts with too little contrast; those that are not in the window are left out."""
    found = []
    for text in texts:
        left, top, right, bottom = map(round, text["place"])
        if text["seen"] == 0 or left < 0 or top < 0 or right > window.width or bottom > window.height or right <= left:
            continue
        pixels = window.crop((left, top, right, max(bottom, top + 1)))
        background = max(pixels.getcolors(pixels.width * pixels.height))[1]
        *fill, alpha = [float(part) for part in re.findall(r"[\d.]+", text["fill"])] + [1.0] * (
            "rgba" not in text["fill"]
        )
        alpha *= text["seen"]
        ratio = contrast(tuple(alpha * a + (1 - alpha) * b for a, b in zip(fill, background, strict=True)), background)
        if ratio < LEAST:
            found.append(f"{text['text'][:40]!r}: {ratio:.1f}, {text['fill']} on {background}")
    return found
