"""Copy the exercises into a folder to work in, and bring older copies there up to date without losing an answer.

    python tools/exercises.py assignments/release student        # or: make student

A copy whose exercises have changed since is made again, with everything that was written into it: changed cells keep
their changes, and added cells stay behind the cell that they followed. The copy as it was stays beside it.
"""

import shutil
import sys
from itertools import count
from pathlib import Path

import nbformat
from nbformat import NotebookNode

BEGUN_FROM = ".begun_from"  # in the student's folder: the exercises as they were when the copies were made


def name(cell: NotebookNode) -> str:
    """The name that a cell keeps when it changes: that of its exercise, or its id."""
    return cell.metadata.get("nbgrader", {}).get("grade_id") or cell.get("id", cell.source)


def merged(mine: NotebookNode, begun_from: NotebookNode, new: NotebookNode) -> NotebookNode:
    """The new notebook with what a student has changed and added in `mine`, which was begun from an older one."""
    before = {name(cell): cell.source for cell in begun_from.cells}
    place = {name(cell): cell for cell in new.cells}
    last = None  # the cell of `new` that the student's next cell follows
    for cell in mine.cells:
        changed = cell.source != before.get(name(cell))
        if name(cell) in place:
            last = place[name(cell)]
            if changed and not last.metadata.get("nbgrader", {}).get("locked"):
                last.source = cell.source
        elif changed:  # added, or changed and now gone from the exercises
            new.cells.insert(new.cells.index(last) + 1 if last else 0, cell)
            last = cell
    return new


def update(copy: Path, begun_from: Path, exercise: Path) -> Path:
    """Make a student's copy again from a changed exercise; returns the path of the old one, which stays."""
    kept = next(path for n in count(1) if not (path := copy.with_name(f"{copy.stem}_before_update_{n}.ipynb")).exists())
    mine, before, new = (nbformat.read(path, as_version=4) for path in (copy, begun_from, exercise))
    written = nbformat.writes(merged(mine, before, new))
    copy.rename(kept)
    copy.write_text(written, encoding="utf-8")
    return kept


def begin(exercises: Path, folder: Path) -> list[str]:
    """Copy or update every notebook below `exercises` in `folder`; returns lines on what is new or updated."""
    old, told, new = folder / BEGUN_FROM, [], 0
    old.mkdir(parents=True, exist_ok=True)
    for exercise in sorted(exercises.rglob("*.ipynb")):
        copy, begun_from = folder / exercise.name, old / exercise.name
        if copy.exists() and not begun_from.exists():
            continue  # not ours to change
        if not copy.exists():
            shutil.copy(exercise, copy)
            new += 1
        elif begun_from.read_bytes() != exercise.read_bytes():
            kept = update(copy, begun_from, exercise)
            told.append(f"updated: {copy}, with your answers; the old version is {kept.name}")
        shutil.copy(exercise, begun_from)
    return [f"new in {folder}: {new} notebooks", *told] if new else told


if __name__ == "__main__":
    print(*begin(Path(sys.argv[1]), Path(sys.argv[2])), sep="\n")
