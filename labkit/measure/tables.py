"""Tables of measurements as JSON files, each with its stamp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.measure import results

if TYPE_CHECKING:
    import pandas

FORMAT = 1


def save(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table, such as `labkit.compare` gives, with its ``attrs`` to a file ending in .json; NaN becomes null.

    Raises:
        LabkitError: the name ends otherwise, or nothing can be written there.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise LabkitError(f"{path}: a table's name ends in .json.")
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    results.write({"format": FORMAT, "attrs": table.attrs, "index": list(table.index), "rows": rows}, path)
    return path


def load(path: Path | str) -> pandas.DataFrame:
    """Reads what `save` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no table.
    """
    import pandas

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        table = pandas.DataFrame(content["rows"], index=content["index"])
        table.attrs = content["attrs"]
    except OSError as error:
        raise LabkitError(f"{path}: cannot be read ({error.strerror}). Is the path right?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabkitError(
            f"{path}: no table in format {FORMAT} ({error}). `labkit compare` writes such a file."
        ) from error
    unknown = [column for column in table if table[column].isna().all()]
    return table.astype(dict.fromkeys(unknown, float))  # null alone would be None, not NaN
