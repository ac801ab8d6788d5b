"""TEACHING.md has the minutes and points of the notebooks, and teachers get a page of the known mistakes."""

from tools import teaching
from tools.mistakes import known


def test_the_table_of_notebooks_is_current():
    page = teaching.TEACHING.read_text(encoding="utf-8")
    assert teaching.filled(page, teaching.read_notebooks()) == page, "run: python -m tools.teaching"


def test_the_page_of_misconceptions_has_each_known_mistake():
    notebooks = teaching.read_notebooks()
    page = teaching.misconceptions(notebooks)
    assert len(notebooks) == page.count("\n## ")
    for path in notebooks:
        for exercise, mistakes in known(path.stem).items():
            assert f"| {exercise} | {', '.join(one.in_words for one in mistakes)} |" in page
