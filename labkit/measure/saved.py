"""A comparison as a JSON file, with its stamp and every measurement."""

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
    """Writes what `labkit.compare` gave to a file ending in .json; what is not known (NaN) becomes null.

    Raises:
        LabkitError: the name ends otherwise, or nothing can be written there.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise LabkitError(f"{path}: a comparison's name ends in .json.")
    rows = json.loads(table.rename_axis("step").reset_index().to_json(orient="records"))
    content = {"format": FORMAT, **table.attrs, "rows": rows}
    results.write(content, path)
    return path


def load(path: Path | str) -> pandas.DataFrame:
    """Reads what `save` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no comparison.
    """
    import pandas

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        table = pandas.DataFrame(content["rows"]).set_index("step").rename_axis(None)
        numbers = [column for column in table if column not in ("verdict", "why")]
        table[numbers] = table[numbers].astype(float)  # null, where a whole column is not known, would be None
        table.attrs = {"stamp": content["stamp"], "seconds": content["seconds"]}
    except OSError as error:
        raise LabkitError(f"{path}: cannot be read ({error.strerror}). Is the path right?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabkitError(
            f"{path}: no comparison in format {FORMAT} ({error}). `labkit compare` writes such a file."
        ) from error
    return table
