"""TEACHING.md and docs/misconceptions.md have the minutes, points and mistakes of the notebooks as they are."""

import pytest

from tools import teaching


@pytest.mark.parametrize("path", teaching.PAGES, ids=lambda path: path.name)
def test_generated_parts_are_current(path):
    page = path.read_text(encoding="utf-8")
    assert "written by tools/teaching.py" in page
    assert teaching.filled(page) == page, "run: python -m tools.teaching"
