"""Measurements in files: the table of a comparison, the results of a survey."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.files import atomic_write

if TYPE_CHECKING:
    import pandas

TABLE_FORMAT, SURVEY_FORMAT = 1, 2
NUMBERS = ["median_s", "times_faster", "times_faster_low", "times_faster_high", "peak_bytes"]


def save(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table of measurements with its ``attrs`` as JSON; NaN becomes null.

    Raises:
        LabkitError: the file cannot be written.
    """
    write(as_json(table), Path(path))
    return Path(path)


def load(path: Path | str) -> pandas.DataFrame:
    """Reads a table that `save` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no table.
    """
    return from_json(read(Path(path), TABLE_FORMAT, ("attrs", "index", "rows")))


def write(content: dict, path: Path) -> None:
    """Writes a table's JSON or a survey's results. If that fails, raises `LabkitError` and keeps the old file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")


def read(path: Path, version: int = SURVEY_FORMAT, parts: tuple[str, ...] = ("stamp", "rows", "skipped")) -> dict:
    """The JSON of a file with these parts; by default the results of a survey, as `tools.survey` writes them.

    Raises:
        LabkitError: the file is missing, damaged, or of another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabkitError(f"{path}: no measurements can be read ({error}). Use another file or a copy.") from error
    if not isinstance(content, dict) or content.get("format") != version or not content.keys() >= set(parts):
        raise LabkitError(f"{path}: no measurements in format {version}, which this version of labkit reads here.")
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
        results: from `labkit.gpu_results`.
        generator, batch_size, size: which CycleGAN, and which batch.
        scope: "step", or "forward" for its two cycles alone.

    Raises:
        LabkitError: the survey has no such timings.
    """
    import pandas

    timings = f"timing/{scope}/{generator}/{size}/b{batch_size}/tf32=default/"
    if f"{timings}baseline" not in results["rows"]:
        raise LabkitError(
            f"no baseline of {generator}, batch {batch_size}, {scope} of {size} pixels in this survey: "
            "run `python -m tools.survey` again to continue it, or choose another."
        )
    baseline = from_json(results["rows"][f"{timings}baseline"]["comparison"])
    stacks = [key.removeprefix(timings) for key in results["rows"] if key.startswith(timings)]
    others = [stack for stack in stacks if stack != "baseline"]
    table = pandas.concat(
        [baseline, *(from_json(results["rows"][timings + stack]["comparison"]).loc[[stack]] for stack in others)]
    )
    correctness = [row for row in results["rows"].values() if row["kind"] == "correctness" and not row["ok"]]
    wrong = table.index.isin(["+".join(row["speedups"]) for row in correctness])
    table.loc[wrong, ["verdict", "why"]] = "not equivalent", "the survey found it wrong: see its correctness row"
    if "device" in results["rows"]:
        rates = results["rows"]["device"]["matmul_flop_per_s"]
        table["share_of_peak"] = table["flop_per_s"] / max(rates["float32"], rates.get("tf32", 0.0))
    table.attrs = {"stamp": baseline.attrs["stamp"], "seconds": {}}
    return table


def races_of(results: Mapping) -> pandas.DataFrame:
    """The races of other models against CycleGAN with ResNet-9, both with the same speed-ups: one row a race.

    Each race was one comparison, in turn in one process. The table is empty if the survey has no races.

    | column | meaning |
    |---|---|
    | model | its name or its generator's, with settings |
    | batch_size, speedups | of both; "baseline" or "a+b" |
    | median_s, peak_bytes | as in `labkit.compare` |
    | times_faster, times_faster_low, times_faster_high | than CycleGAN, with a 95% interval |

    Args:
        results: from `labkit.gpu_results`.
    """
    import pandas

    rows = []
    for row in results["rows"].values():
        if row["kind"] == "race":
            last = from_json(row["comparison"]).iloc[-1]
            stack = "+".join(row["speedups"]) or "baseline"
            rows.append({"model": last.name, "batch_size": row["batch_size"], "speedups": stack, **last[NUMBERS]})
    return pandas.DataFrame(rows, columns=["model", "batch_size", "speedups", *NUMBERS])
