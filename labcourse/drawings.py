"""The lessons' drawings: SVG files on white paper of their own, each with its content in words beside it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from labtrace.errors import check_known

FOLDER = Path(__file__).with_suffix("")  # drawings/NAME.svg
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, repr=False)
class Drawing:
    """An SVG picture and its text alternative: a notebook shows the picture, a terminal the words.

    Attributes:
        svg: the file's text, to be put into HTML as it is.
        title: the picture's name, a few words.
        words: the picture's content, in sentences.
    """

    svg: str
    title: str
    words: str

    def __repr__(self) -> str:
        return f"{self.title}. {self.words}"

    def _repr_html_(self) -> str:
        picture = self.svg.replace('style="', 'style="max-width: 100%; height: auto; ', 1)
        words = f'<details><summary style="display: list-item">In words</summary>{escape(self.words)}</details>'
        return f'<figure style="margin: 0">{picture}<figcaption style="font-size: small">{words}</figcaption></figure>'


def drawing(name: str) -> Drawing:
    """A drawing of the lessons, for the last line of a notebook's cell.

    Args:
        name: "cyclegan", or another file in ``labcourse/drawings/`` without its ending. Such a file has a
            ``<title>`` and a ``<desc>``, which screen readers speak.

    Raises:
        LabkitError: there is no such drawing.
    """
    check_known("name", name, sorted(file.stem for file in FOLDER.glob("*.svg")))
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    return Drawing(svg, root.findtext(f"{SVG}title", ""), root.findtext(f"{SVG}desc", ""))
