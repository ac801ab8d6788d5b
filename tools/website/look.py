"""Open every page of the site in Chromium without a network, and count: figures drawn, requests to outside, errors.

    python -m tools.website.look [--pictures FOLDER]      # after `make site`; needs Chromium and the extra `browser`

Fails if a figure is not drawn, a page asks for anything outside, or the console has an error.
"""

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).resolve().parents[2] / "out" / "site"
EXPECTED = "document.querySelectorAll('figure.plotly-figure, .chooser').length"
DRAWN = "[...document.querySelectorAll('.js-plotly-plot')].filter(plot => plot.querySelector('svg.main-svg')).length"
BROKEN = "[...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src)"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def look(page: Page, path: Path, problems: list[str]) -> tuple[int, int]:
    """How many figures a page draws, and how many it should."""
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.figures === 'drawn'", timeout=120_000)
    drawn, expected = page.evaluate(DRAWN), page.evaluate(EXPECTED)
    problems += [f"{path.name}: {drawn} of {expected} figures drawn"] * (drawn != expected)
    problems += [f"{path.name}: no picture at {source}" for source in page.evaluate(BROKEN)]
    problems += [f"{path.name}: {wider} pixels wider than the window"] if (wider := page.evaluate(WIDER)) > 1 else []
    return drawn, expected


def main() -> int:
    """The command line; the number of problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the pages, light and dark")
    folder = parser.parse_args().pictures
    problems, counts, outside = [], [], []
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1024, "height": 768}, color_scheme=scheme, offline=True)
            page = context.new_page()
            page.on(
                "request",
                lambda request: request.url.startswith(("file:", "data:", "blob:")) or outside.append(request.url),
            )
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda line: line.type == "error" and problems.append(line.text))
            for path in sorted(SITE.rglob("*.html")):
                counts.append(look(page, path, problems))
                if folder:
                    name = "_".join(path.relative_to(SITE).with_suffix("").parts)
                    page.screenshot(path=folder / f"{name}_{scheme}.png", full_page=True)
            context.close()
        browser.close()
    drawn, expected = map(sum, zip(*counts, strict=True))
    largest = max(SITE.rglob("*.html"), key=lambda path: path.stat().st_size)
    print(f"{len(counts)} pages opened, {drawn} of {expected} figures drawn, {len(outside)} requests to outside")
    print(f"largest page: {largest.relative_to(SITE)}, {largest.stat().st_size / 1e6:.2f} MB")
    print("\n".join([*outside, *problems]))
    return len(outside) + len(problems)


if __name__ == "__main__":
    sys.exit(main())
