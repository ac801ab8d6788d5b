"""Measurements in files: the table of a comparison, the results of a survey."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.measure.plan import Item

if TYPE_CHECKING:
    import pandas

TABLE_FORMAT, SURVEY_FORMAT = 1, 2


def save(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table of measurements with its ``attrs`` to a file ending in .json; NaN becomes null.

    Raises:
        LabkitError: the name has another ending, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise LabkitError(f"{path}: a table's name ends in .json.")
    write(as_json(table), path)
    return path


def load(path: Path | str) -> pandas.DataFrame:
    """Reads a table that `save` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no table.
    """
    parts = {"attrs": dict, "index": list, "rows": list}
    return from_json(_content(Path(path), "table", TABLE_FORMAT, parts, "`labkit compare` writes such a file."))


def write(content: dict, path: Path) -> None:
    """Writes a table's JSON or a survey's results. If that fails, raises `LabkitError` and keeps the old file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")


def read(path: Path) -> dict:
    """The results of a survey, as `labkit.measure.survey.survey` describes them.

    Raises:
        LabkitError: the file is missing, damaged, or holds no results in this format.
    """
    parts = {"stamp": dict, "rows": dict, "skipped": dict}
    advice = "Use another file or a copy, or move it away to start a new survey."
    return _content(path, "results of a survey", SURVEY_FORMAT, parts, advice)


def _content(path: Path, kind: str, version: int, parts: Mapping[str, type], advice: str) -> dict:
    """The JSON in a file, if it is of this kind and version and has these parts."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{path}: no {kind} can be read ({error.strerror}). Is the path right?") from error
    except ValueError as error:
        raise LabkitError(f"{path}: no {kind}, or damaged ({error}). {advice}") from error
    whole = isinstance(content, dict) and all(isinstance(content.get(part), parts[part]) for part in parts)
    if not whole or content.get("format") != version:
        raise LabkitError(f"{path}: no {kind} in format {version}, which this version of labkit reads. {advice}")
    return content


def as_json(table: pandas.DataFrame) -> dict:
    """A table as JSON can hold it; `from_json` takes it back."""
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    return {"format": TABLE_FORMAT, "attrs": table.attrs, "index": list(table.index), "rows": rows}


def from_json(content: dict) -> pandas.DataFrame:
    """The table of which `as_json` made `content`."""
    import pandas

    table = pandas.DataFrame(content["rows"], index=content["index"])
    table.attrs = content["attrs"]
    unknown = [column for column in table if table[column].isna().all()]
    return table.astype(dict.fromkeys(unknown, float))  # null alone would be None, not NaN


def comparison_of(
    results: Mapping, generator: str = "resnet_9blocks", batch_size: int = 1, scope: str = "step", size: int = 256
) -> pandas.DataFrame:
    """The timings of one CycleGAN, batch and scope: one row a stack of speed-ups, "a+b", as `labkit.compare` has them.

    Each stack was timed against a baseline in its own comparison; the baseline's two rows are from the comparison of
    the baseline alone. A stack that a correctness row of the survey found wrong is "not equivalent". share_of_peak is
    of the device's fastest matrix product in float32, with TF32 where it has that.

    Args:
        results: from `read` or `labkit.gpu_results`.
        generator, batch_size, scope, size: which timings; see `labkit.measure.plan.Item`.

    Raises:
        LabkitError: the survey has no such timings.
    """
    import pandas

    baseline_key = Item("timing", 0, {"generator": generator}, size, batch_size, scope).key
    if baseline_key not in results["rows"]:
        raise LabkitError(
            f"no baseline of {generator}, batch {batch_size}, {scope} of {size} pixels in this survey: "
            "run `labkit survey` again to continue it, or choose another."
        )
    baseline = from_json(results["rows"][baseline_key]["comparison"])
    tables, wrong, peak = [baseline], [], 0.0
    for key, row in results["rows"].items():
        same, _, stack = key.rpartition("/")
        if same == baseline_key.rpartition("/")[0] and key != baseline_key:
            tables.append(from_json(row["comparison"]).loc[[stack]])
        elif row["kind"] == "correctness" and not row["ok"]:
            wrong.append(stack)
        elif row["kind"] == "device":
            rates = row["matmul_flop_per_s"]
            peak = max(rates["float32"], rates.get("tf32", 0.0))
    table = pandas.concat(tables)
    why = "the survey found it wrong: see its correctness row"
    table.loc[table.index.isin(wrong), ["verdict", "why"]] = "not equivalent", why
    if peak:
        table["share_of_peak"] = table["flop_per_s"] / peak
    table.attrs = {"stamp": baseline.attrs["stamp"], "seconds": {}}
    return table


def races_of(results: Mapping) -> pandas.DataFrame:
    """The races of other models against CycleGAN with ResNet-9, both with the same speed-ups: one row a race.

    Columns: model, its name or its generator's, with settings; batch_size; speedups, "baseline" or "a+b"; median_s;
    times_faster than CycleGAN, with times_faster_low and _high, a 95% interval; peak_bytes. Each race was one
    comparison, in turn in one process. The table is empty if the survey has no races.

    Args:
        results: from `read` or `labkit.gpu_results`.
    """
    import pandas

    numbers = ["median_s", "times_faster", "times_faster_low", "times_faster_high", "peak_bytes"]
    rows = []
    for row in results["rows"].values():
        if row["kind"] == "race":
            last = from_json(row["comparison"]).iloc[-1]
            stack = "+".join(row["speedups"]) or "baseline"
            rows.append({"model": last.name, "batch_size": row["batch_size"], "speedups": stack, **last[numbers]})
    return pandas.DataFrame(rows, columns=["model", "batch_size", "speedups", *numbers])
