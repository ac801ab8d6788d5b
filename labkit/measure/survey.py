"""All the measurements of a plan, in the minutes there are: a runner that loses nothing, and continues."""

from __future__ import annotations

import gc
import re
import statistics
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path

import torch

from labkit.devices import pick_device
from labkit.errors import LabkitError
from labkit.measure.measurements import MEASURES
from labkit.measure.plan import Item, gpu_plan, rehearsal_plan
from labkit.measure.record import run_in_subprocess
from labkit.measure.results import SURVEY_FORMAT, read, write
from labkit.measure.timing import flags
from labkit.stamp import stamp

FILE = "results.json"
NO_TIME = "no time left"
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|ALLOC_FAILED")


def survey(
    out: Path | str,
    minutes: float = 8.5,
    earlier: Path | str | None = None,
    device: str = "auto",
    plan: list[Item] | None = None,
) -> Path:
    """Measures the items of a plan until the time is up, and rewrites results.json after every item.

    Items that have a row in the results are not measured again, so several calls complete a plan. A failure costs its
    own item only, and is noted; the next call tries that item again, after all items that were never tried.

    Args:
        out: the folder for results.json and at most seven traces. Results in it are continued.
        minutes: no item is started that would need longer. An item may overrun its estimate a little.
        earlier: results of an earlier call in another folder, to continue. That file is not changed.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: the items, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.

    Returns:
        The path of results.json. In it "rows" has the measurements by the items' keys, each with its own stamp;
        "skipped" says why an item has none; "stamp" is the latest call's.

    Raises:
        LabkitError: an argument cannot be used, `out` cannot be written to, or the GPU failed for good.
    """
    if not minutes > 0:
        raise LabkitError(f"minutes={minutes}: give a positive number of minutes to measure in.")
    deadline = time.monotonic() + 60 * minutes
    where = pick_device(device)
    on_gpu = where.type == "cuda"
    file = Path(out) / FILE
    if plan is None:
        plan = gpu_plan() if on_gpu else rehearsal_plan()
    with (
        torch.cuda.device(where if on_gpu else -1),  # time and memory are measured on the current GPU
        torch.random.fork_rng([where] if on_gpu else []),  # measuring sets seeds
        flags("default"),
    ):
        results = _continued(file, earlier, stamp() | {"ran_on": where.type})
        _work_through(plan, results, file, where, deadline)
    return file


def _continued(file: Path, earlier: Path | str | None, here: dict) -> dict:
    """Results to add to, written to `file`: the results in it, the `earlier` results, or new ones."""
    source = file if earlier is None else Path(earlier)
    if file.exists() and file.resolve() != source.resolve():
        raise LabkitError(
            f"{file.parent} holds results of its own, which the results in {source} would overwrite. Omit the earlier "
            "file to continue the results in the folder, or choose an empty folder."
        )
    results: dict = {"format": SURVEY_FORMAT, "stamp": here, "rows": {}, "skipped": {}}
    if earlier is not None or file.exists():
        results = read(source)
        theirs, ours = (f"{one.get('device')} ({one.get('ran_on')})" for one in (results["stamp"], here))
        if theirs != ours:
            raise LabkitError(
                f"{source}: measured on {theirs}, but this is {ours}. Each device needs results of its own: choose an "
                "empty folder, and no earlier file."
            )
    results["stamp"] = here
    write(results, file)
    return results


def _work_through(plan: list[Item], results: dict, file: Path, device: torch.device, deadline: float) -> None:
    """Measures the items of a plan that have no row yet, as long as the time suffices."""
    rows, skipped = results["rows"], results["skipped"]
    todo = [item for item in plan if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill lists the missing items
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # items that failed in an earlier call come last
    tempo: dict[str, list[float]] = {}  # by kind, how many times longer than estimated its items took
    for item in todo:
        if deadline - time.monotonic() < item.estimate_s * statistics.median(tempo.get(item.kind, [1.0])):
            print(f"{item.key}: skipped, {skipped[item.key]}", flush=True)
            continue
        skipped[item.key] = "did not finish"
        write(results, file)
        started = time.monotonic()
        row, said = (_recorded_in_subprocess if item.kind == "trace" else measured)(item, device, file.parent)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = said, f"skipped, {said}"
        else:
            del skipped[item.key]
            rows[item.key] = row | {"took_s": round(took, 1)}
            tempo.setdefault(item.kind, []).append(took / item.estimate_s)
        write(results, file)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        free(device, item)
    write(results, file)


def measured(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """An item's row and its result in words; or None, and the reason why there is no row."""
    try:
        with warnings.catch_warnings(), flags(item.tf32):
            for name in item.speedups:  # a speed-up that warns that it does nothing here is not timed as 1.00x
                warnings.filterwarnings("error", rf"{name}: ", UserWarning)
            row, said = MEASURES[item.kind](item, device, out)
            return asdict(item) | {"stamp": stamp()} | row, said
    except Exception as error:
        if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
            return None, "out of memory"
        if isinstance(error, UserWarning):
            return None, f"does not suit this device: {error}"
        if isinstance(error, LabkitError):
            return None, str(error)
        traceback.print_exception(error)
        return None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _recorded_in_subprocess(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """`measured`, in a new process: otherwise the profiler would disturb all later traces and timings."""
    try:
        return run_in_subprocess(measured, item, device, out)
    except LabkitError as error:
        return None, str(error)


def free(device: torch.device, item: Item) -> None:
    """Frees the memory that `item` left. Raises `LabkitError` if it left the GPU in a state beyond recovery."""
    gc.collect()  # a step and its optimisers refer to each other
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            raise LabkitError(
                f"the GPU no longer answers after {item.key} ({error}). The results so far are written: "
                "run the same command again to continue."
            ) from error
