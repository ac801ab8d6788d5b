"""TEACHING.md has the minutes, points and misconceptions of the notebooks as they are."""

from tools import teaching


def test_generated_parts_are_current():
    page = teaching.PAGE.read_text(encoding="utf-8")
    assert teaching.filled(page) == page, "run: python -m tools.teaching"
