"""Run the notebooks, each once: a notebook runs again only if it, labkit or the recordings changed."""

import hashlib
import os
import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
STATES = "application/vnd.jupyter.widget-state+json"
INPUTS = ("labkit", "data")  # folders that the notebooks' outputs depend on
LONGEST_FIRST = ("05", "07", "06", "08")  # so that no long one is left for the end


def digest(*made_from: Path) -> str:
    """A name for some files and for everything else that outputs depend on."""
    files = [path for folder in INPUTS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    found = hashlib.sha256()
    for path in (*made_from, *sorted(path for path in files if path.is_file())):
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


def execute(path: Path, done: Path, key: str) -> str:
    """Run a notebook and keep it with its outputs, its widgets and its key in the file `done`; its name."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LABKIT_LEDGER"] = str(Path(folder) / "ledger.json")  # the predictions in the clone's own stay
        os.environ["OMP_NUM_THREADS"] = "1"  # several run at a time
        NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(path.parent)}}).execute()
    for widget in notebook.metadata.get("widgets", {}).get(STATES, {}).get("state", {}).values():
        drop_programs(widget["state"])
    notebook.metadata["website_key"] = key
    done.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, done)
    return path.stem


def drop_programs(state: dict[str, Any]) -> None:
    """Drop the megabytes of JavaScript that a figure's widget brings along."""
    for name in ("_esm", "_css", "text"):
        if len(str(state.get(name, ""))) > 10_000:
            del state[name]


def key_of(done: Path) -> str:
    """The key with which a notebook was run; empty if it was not."""
    return nbformat.read(done, as_version=4).metadata.get("website_key", "") if done.exists() else ""


def execute_stale(pool: Executor, notebooks: list[Path], folder: Path) -> list[Future[str]]:
    """Begin to run those notebooks whose outputs are not in `folder` yet.

    The results, names of notebooks, raise `nbclient.exceptions.CellExecutionError` if a cell failed.
    """
    keys = {path: digest(path) for path in notebooks}
    stale = [path for path, key in keys.items() if key_of(folder / path.name) != key]
    stale.sort(key=lambda path: LONGEST_FIRST.index(path.name[:2]) if path.name[:2] in LONGEST_FIRST else 9)
    return [pool.submit(execute, path, folder / path.name, keys[path]) for path in stale]
