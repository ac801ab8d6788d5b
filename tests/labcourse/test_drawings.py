"""The lessons' drawings say the same in words, and can be read on any page."""

import re
from xml.etree import ElementTree

import pytest

from labcourse.drawings import FOLDER, drawing

NAMES = sorted(file.stem for file in FOLDER.glob("*.svg"))


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_speaks_and_fits_any_page(name):
    shown = drawing(name)
    html = shown._repr_html_()
    root = ElementTree.fromstring(shown.svg)
    assert root.get("role") == "img" and root.get("viewBox")
    assert shown.title and len(shown.words.split()) > 20
    assert shown.title in repr(shown) and shown.words in repr(shown)
    assert ">In words</summary>" in html and 'style="max-width: 100%; height: auto; background: white; ' in html
    assert 'style="background: white; color: black"' in shown.svg, "as a picture on a dark page, it needs paper, too"
    # Two drawings on one page share one space of ids.
    ids = re.findall(r'\bid="([^"]+)"', shown.svg)
    assert len(ids) == len(set(ids)) and {*re.findall(r'(?:href="#|url\(#)([^")]+)', shown.svg)} <= {*ids}
    assert all(one.startswith(f"{name}-") for one in ids)
