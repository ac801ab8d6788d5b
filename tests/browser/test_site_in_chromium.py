"""A page of the site, opened from its file without a network."""

import pytest
from test_site import built

pytestmark = pytest.mark.browser
DRAWN = "document.querySelectorAll('figure.plotly-figure .js-plotly-plot svg.main-svg').length"


def test_figures_are_drawn_and_nothing_is_asked_of_the_outside(browser, tmp_path):
    asked, errors = [], []
    page = browser.new_context(offline=True).new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(built(tmp_path).as_uri())
    page.wait_for_function(f"{DRAWN} >= 2", timeout=120_000)
    page.context.close()
    assert not errors and {address.partition(":")[0] for address in asked} <= {"file", "data", "blob"}
