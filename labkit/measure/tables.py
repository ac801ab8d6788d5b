"""The table of a comparison, and the results of a visit to a GPU, as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError, explained
from labtrace.files import atomic_write

if TYPE_CHECKING:
    import pandas

TABLE_FORMAT, SURVEY_FORMAT = 1, 2


def write_table(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table of measurements with its ``attrs`` as JSON. NaN becomes null.

    Raises:
        LabkitError: the file cannot be written.
    """
    write_results(as_json(table), Path(path))
    return Path(path)


def read_table(path: Path | str) -> pandas.DataFrame:
    """Reads a table that `write_table` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no table.
    """
    return from_json(read_results(Path(path), TABLE_FORMAT))


def write_results(content: dict, path: Path) -> None:
    """Writes a table's JSON or a visit's results. If that fails, raises `LabkitError` and keeps the old file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_results(path: Path, version: int = SURVEY_FORMAT) -> dict:
    """The JSON of a file in this format, by default the results of a visit (benchmarks/authoring/visit.py).

    Raises:
        LabkitError: the file is missing, damaged, or of another format.
    """
    with explained(f"{path}: no measurements can be read", "Use another file or a copy."):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("format") != version:
        raise LabkitError(f"{path}: no measurements in format {version}, which this version of labkit reads here.")
    return content


def as_json(table: pandas.DataFrame) -> dict:
    """A table in the types of JSON. `from_json` turns it back."""
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    return {"format": TABLE_FORMAT, "attrs": table.attrs, "index": list(table.index), "rows": rows}


def from_json(content: dict) -> pandas.DataFrame:
    """The table that `as_json` turned into `content`."""
    import pandas

    table = pandas.DataFrame(content["rows"], index=content["index"])
    table.attrs = content["attrs"]
    unknown = [column for column in table if table[column].isna().all()]
    return table.astype(dict.fromkeys(unknown, float))  # a column of nulls alone would be None, not NaN
