"""docs/speedrun.md has the ladder of the records as they are."""

import pytest

from benchmarks.authoring.ladder import PAGE, filled

pytestmark = pytest.mark.slow


def test_the_page_has_the_ladder_as_it_is():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python -m benchmarks.authoring.ladder"
