"""The browser of all these tests: Playwright opens one in a process only."""

import pytest


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="make browser installs Playwright")
    from lab_page import chromium

    with sync_api.sync_playwright() as playwright, chromium(playwright) as opened:
        yield opened
