"""The figures for readers on GitHub: each picture of the page is there, for every notebook, and all stay small."""

import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from benchmarks.authoring.gallery import in_words

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_shows_every_notebook_and_each_of_its_pictures_and_no_picture_is_left_over():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    notebooks = sorted((DOCS.parent / "notebooks").glob("*.ipynb"))
    assert re.findall(r"^## \[.*\(\.\./notebooks/(.*)\)", page, flags=re.MULTILINE) == [one.name for one in notebooks]
    for path in notebooks:
        assert f"[the gallery](../docs/gallery.md#{path.stem})" in path.read_text(encoding="utf-8")
    shown = re.findall(r'<img alt="(.+?)" src="(.*?)">', page)
    assert len(shown) == page.count("<img") and "![" not in page, "each has its text alternative"
    assert all((DOCS / path).is_file() for _, path in shown)
    pictures = {DOCS / path for _, path in shown if not path.endswith(".svg")}
    assert pictures == set((DOCS / "gallery").iterdir())
    assert sum(path.stat().st_size for path in (DOCS / "gallery").iterdir()) < 3e6


def test_the_words_beside_a_picture_say_what_it_shows():
    shown = [
        go.Bar(x=[0.4, 0.6], y=["batch 1", "batch 16"], name="idle"),
        go.Bar(x=[2, 4], y=["stream 7", "stream 7"], base=[0, 6]),
        dict(type="scatter", y={"bdata": "BQkH", "dtype": "i1"}, name="bf16"),
    ]
    layout = dict(xaxis=dict(range=(0, 10), title="seconds"), meta={"text": "A title.", "table": "<table>"})
    assert in_words(go.Figure(shown, layout=layout)) == (
        "A title. bf16 goes from 5 to 7, at most 9; Most, as seconds: batch 16, idle 0.6; batch 1, idle 0.4; "
        "stream 7 is filled to 60%."
    )
