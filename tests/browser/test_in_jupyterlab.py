"""Every notebook in a real JupyterLab under headless Chromium, as a reader meets it; `make browser` runs this.

Screenshots of all figures in both themes, and a summary in JSON, go to out/browser/.
"""

import json
import time

import pytest
from contrast import illegible
from lab_server import ROOT, jupyterlab

OUT = ROOT / "out" / "browser"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def open_notebook(tmp_path_factory):
    """A function that opens a notebook, by the name of its file, in the session's JupyterLab and browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="make browser installs Playwright")
    from lab_page import LabPage, chromium

    with jupyterlab(tmp_path_factory.mktemp("lab")) as address, sync_api.sync_playwright() as playwright:
        browser = chromium(playwright)
        yield lambda notebook: LabPage(browser, address, notebook)
        browser.close()


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_reader_sees_every_figure_and_moves_every_widget(open_notebook, notebook):
    started = time.monotonic()
    OUT.mkdir(parents=True, exist_ok=True)
    lab = open_notebook(notebook.name)
    lab.run()
    cells = lab.outputs()
    faults = [f"cell {number}: {error}" for number, cell in enumerate(cells) for error in cell["errors"]]
    faults += [f"cell {number} did not run" for number, cell in enumerate(cells) if cell["code"] and not cell["ran"]]
    moved = {}
    drawn = 0
    for theme, name in THEMES.items():
        lab.theme(name)
        for number, cell in enumerate(cells):
            if theme == "dark" and not cell["figures"]:
                continue  # JupyterLab's own business
            graphs = lab.graphs(box := lab.cell(number, cell["figures"]))
            where = f"{theme}, cell {number}"
            faults += [f"{where}: {part}" for part in lab.wide(number)]
            shown = [graph for graph in graphs if lab.marks(graph)]
            drawn += len(shown)
            if not len(graphs) == len(shown) == cell["figures"]:
                faults.append(f"{where}: {cell['figures']} figures, {len(graphs)} are there, {len(shown)} drawn")
            for place, graph in enumerate(shown):
                faults += [
                    f"{where}: {text}" for text in see(lab, graph, f"{notebook.stem[:2]}-{theme}-{number}-{place}")
                ]
            if theme == "light":
                for control, changed in lab.moves(box):
                    moved[f"{where}, {control}"] = changed
    faults += [f"{control}: the figure stayed as it was" for control, changed in moved.items() if not changed]
    faults += [f"asked for {address}" for address in lab.outside] + [f"console: {line}" for line in lab.console]
    controls = {name.rpartition(": ")[0] for name in moved}
    stuck = {name.rpartition(": ")[0] for name, changed in moved.items() if not changed}
    report = {
        "figures": sum(cell["figures"] for cell in cells),
        "drawn, in two themes": drawn,
        "controls": len(controls),
        "controls that change their figure": len(controls - stuck),
        "moves": len(moved),
        "outside requests": len(lab.outside),
        "seconds": round(time.monotonic() - started),
        "faults": faults,
    }
    (OUT / f"{notebook.stem}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    lab.close()
    assert report["figures"] or notebook.stem == "13_write_a_kernel", "no figure"
    assert not faults, "\n".join(faults)


def see(lab, graph, name: str) -> list[str]:
    """Keeps a screenshot of a figure; its texts that cannot be read."""
    window, place = lab.picture(graph)
    left, top, right, bottom = place
    window.crop((left, max(top, 0), right, min(bottom, window.height))).save(OUT / f"{name}.png")
    return illegible(window, lab.texts(graph))
