"""TEACHING.md has the minutes and points of the notebooks, and each notebook has a session."""

import re

from tools import teaching


def test_the_table_of_notebooks_is_current():
    page = teaching.TEACHING.read_text(encoding="utf-8")
    assert teaching.filled(page, teaching.read_notebooks()) == page, "run: python -m tools.teaching"


def test_each_notebook_has_a_session_of_one_page_whose_figures_exist():
    page = teaching.ROOT / "docs" / "sessions.md"
    sessions = page.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [one.split()[0] for one in sessions] == [path.stem.partition("_")[0] for path in teaching.read_notebooks()]
    for session in sessions:
        links = re.findall(r"\]\((.*?)\)", session)
        assert links and all((page.parent / link).exists() for link in links), session
        assert len(re.sub(r"\(\S*/\S*\)", "", session).split()) <= 140
