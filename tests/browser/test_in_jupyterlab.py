"""Every notebook in a real JupyterLab under headless Chromium, as a reader meets it; `make browser` runs this.

Screenshots of all figures in both themes go to out/browser/.
"""

import itertools
import time

import nbformat
import pytest
from contrast import illegible
from lab_server import ROOT, jupyterlab
from nbclient import NotebookClient
from nbformat.sign import NotebookNotary

import labcourse

OUT = ROOT / "out" / "browser"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SETUP = """
import plotly.express as px, torch, types, labcourse, labkit
from labcourse import check
from labkit import show
run = types.SimpleNamespace(losses={"G_A": [1.0, 0.5]}, steps=2, done=2, model=labkit.CycleGAN(ngf=4, ndf=4))
live, box = show.LiveLosses(2), None
"""
FIGURES = {  # each in a cell that also redraws it, as a reader does who moves a control
    "live losses": "display(live.figure); live(run)",
    "queue": "box = labcourse.queue_widget(); display(box); box.children[0].value = 12",
    "overlap": "box = labcourse.overlap_widget(); display(box); box.children[0].value = 0.5",
    "scaling": "box = labcourse.scaling_widget({'generators': torch.rand(9)}); display(box); box.children[0].value = 1",
    "explorer": "box = show.trace_explorer(check.unknown_traces('out')); display(box); box.children[1].value = 'idle'",
    "plain figure": "show.view(labcourse.queue_figure())",
    "plain figure without a height": "px.line(y=[1, 2])",
}
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
FAR = '<div style="height: 2500px"></div>'

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def open_notebook(browser, tmp_path_factory):
    """A function that opens a notebook, by the name of its file, in the session's JupyterLab and browser."""
    from lab_page import LabPage

    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder) as address:
        nbformat.write(widgets(), folder / "notebooks" / "widgets.ipynb")
        nbformat.write(run_elsewhere(folder), folder / "notebooks" / "run_elsewhere.ipynb")
        yield lambda notebook: LabPage(browser, address, notebook)


def widgets() -> nbformat.NotebookNode:
    """A notebook of the course's widgets, each out of view of the others."""
    cells = [nbformat.v4.new_code_cell(SETUP)]
    for source in FIGURES.values():
        cells += [nbformat.v4.new_markdown_cell(FAR), nbformat.v4.new_code_cell(source)]
    return nbformat.v4.new_notebook(cells=cells, metadata=KERNEL)


def run_elsewhere(folder) -> nbformat.NotebookNode:
    """A notebook with the state of a widget, which has no kernel any more: as a teacher opens an answer to mark."""
    cells = [nbformat.v4.new_code_cell("import labcourse\nlabcourse.queue_widget()")]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=KERNEL)
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT)}}).execute()
    NotebookNotary(data_dir=str(folder / "JUPYTER_DATA_DIR")).sign(notebook)
    return notebook


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_reader_sees_every_figure_and_moves_every_widget(open_notebook, notebook):
    OUT.mkdir(parents=True, exist_ok=True)
    lab = open_notebook(notebook.name)
    lab.run()
    cells = lab.page.evaluate("look.outputs()")
    faults = [f"cell {number}: {error}" for number, cell in enumerate(cells) for error in cell["errors"]]
    faults += [f"cell {number} did not run" for number, cell in enumerate(cells) if cell["code"] and not cell["ran"]]
    for theme, name in THEMES.items():
        lab.theme(name)
        for number, cell in enumerate(cells):
            if theme == "dark" and not cell["figures"]:
                continue  # JupyterLab's own business
            box = lab.cell(number, cell["figures"])
            graphs = box.query_selector_all(".js-plotly-plot")
            where = f"{theme}, cell {number}"
            wide = lab.page.evaluate("number => look.wide(look.cell(number))", number)
            faults += [f"{where}: {part}" for part in wide]
            shown = [graph for graph in graphs if graph.evaluate("graph => look.marks(graph)")]
            if not len(graphs) == len(shown) == cell["figures"]:
                faults.append(f"{where}: {cell['figures']} figures, {len(graphs)} are there, {len(shown)} drawn")
            for place, graph in enumerate(shown):
                faults += [f"{where}: {text}" for text in see(lab, graph, f"{notebook.stem}-{theme}-{number}-{place}")]
            if theme == "light":
                stuck = [control for control, changed in lab.moves(box) if not changed]
                faults += [f"{where}, {control}: the figure stayed as it was" for control in stuck]
    faults += [f"asked for {address}" for address in lab.outside] + [f"console: {line}" for line in lab.console]
    lab.close()
    assert any(cell["figures"] for cell in cells) or notebook.stem == "13_write_a_kernel", "no figure"
    assert not faults, "\n".join(faults)


def test_a_figure_keeps_its_height_when_the_width_changes_out_of_view(open_notebook):
    lab = open_notebook("widgets.ipynb")
    lab.run()
    numbers = {name: 2 + 2 * place for place, name in enumerate(FIGURES)}
    at_first = {name: lab.sizes(number) for name, number in numbers.items()}
    assert all(height > 100 and fits for ((height, _, fits),) in at_first.values())
    found = {}
    for theme, way in itertools.product(THEMES.values(), ("sidebar", "window", "tab")):
        lab.theme(theme)
        lab.change_width(way)
        found |= {(theme, way, name): lab.sizes(number) for name, number in numbers.items()}
    assert not lab.console
    lab.close()
    assert found == {(theme, way, name): at_first[name] for theme, way, name in found}


def test_a_figure_without_its_kernel_stays_as_high_as_it_was(open_notebook):
    lab = open_notebook("run_elsewhere.ipynb")
    height = labcourse.queue_figure().layout.height
    assert lab.sizes(0) == [[height, height, True]]
    time.sleep(3)  # in which it grew
    assert lab.sizes(0) == [[height, height, True]]
    lab.close()


def see(lab, graph, name: str) -> list[str]:
    """Keeps a screenshot of a figure; its texts that cannot be read."""
    window, place = lab.picture(graph)
    left, top, right, bottom = place
    window.crop((left, max(top, 0), right, min(bottom, window.height))).save(OUT / f"{name}.png")
    return illegible(window, graph.evaluate("graph => look.texts(graph)"))
