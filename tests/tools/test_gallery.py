"""The figures for readers on GitHub: each picture of the page is there, for every notebook, and all stay small."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_shows_every_notebook_and_each_of_its_pictures_and_no_picture_is_left_over():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    notebooks = sorted(path.name for path in (DOCS.parent / "notebooks").glob("*.ipynb"))
    assert re.findall(r"^## \[.*\(\.\./notebooks/(.*)\)", page, flags=re.MULTILINE) == notebooks
    drawings, pictures = re.findall(r"\]\((\S+\.svg)\)", page), re.findall(r'src="(.*?)"', page)
    assert all((DOCS / path).is_file() for path in [*drawings, *pictures])
    assert {DOCS / path for path in pictures} == set((DOCS / "gallery").iterdir())
    assert all(re.findall(r'alt="(.*?)"', page)), "each has its text alternative"
    assert sum(path.stat().st_size for path in (DOCS / "gallery").iterdir()) < 3e6
