"""Everything worth recording on this device, in the minutes there are: a runner that loses nothing."""

from __future__ import annotations

import gc
import re
import statistics
import time
import traceback
import warnings
from pathlib import Path

import torch

from labkit.devices import pick_device
from labkit.errors import LabkitError
from labkit.measure import results as files
from labkit.measure.apart import apart
from labkit.measure.measurements import MEASURES, flags
from labkit.measure.plan import Item, gpu_plan, rehearsal_plan
from labkit.stamp import stamp

NO_TIME = "no time left"
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|ALLOC_FAILED")


def survey(
    out: Path | str,
    minutes: float = 8.5,
    earlier: Path | str | None = None,
    device: str = "auto",
    plan: list[Item] | None = None,
) -> Path:
    """Measures what a plan lists until the time is up, and writes results.json anew after every item.

    What is in the results already is not measured again, so several calls complete a list. Whatever an item runs
    into costs its own row only, and is noted; the next call tries it again, after what was never tried.

    Args:
        out: the folder for results.json and at most seven traces. Results in it are continued.
        minutes: after these no item is begun that would need longer. An item may overrun its estimate a little.
        earlier: results of an earlier call in another folder, to go on from. That file is not changed.
        device: "cuda", "cpu", or "auto" for the GPU if there is one.
        plan: what to measure, in this order; by default `gpu_plan()` on a GPU and `rehearsal_plan()` elsewhere.

    Returns:
        The path of results.json; see `labkit.measure.results.go_on` for what is in it.

    Raises:
        LabkitError: an argument cannot be used, `out` cannot be written to, or the GPU failed for good.
    """
    if not minutes > 0:
        raise LabkitError(f"minutes={minutes}: there must be some time to measure in.")
    deadline = time.monotonic() + 60 * minutes
    device = pick_device(device)
    on_gpu = device.type == "cuda"
    out = Path(out)
    if plan is None:
        plan = gpu_plan() if on_gpu else rehearsal_plan()
    with (
        torch.cuda.device(device if on_gpu else -1),  # time and memory are measured on the current GPU
        torch.random.fork_rng([device] if on_gpu else []),  # measuring sets seeds
        flags("default"),
    ):
        results = files.go_on(out / files.FILE, earlier, stamp() | {"ran_on": device.type})
        work_through(plan, results, out, device, deadline)
    return out / files.FILE


def work_through(plan: list[Item], results: dict, out: Path, device: torch.device, deadline: float) -> None:
    """Measures the items of a plan that have no row yet, as long as the time suffices."""
    rows, skipped = results["rows"], results["skipped"]
    todo = [item for item in plan if item.key not in rows]
    for item in todo:
        skipped.setdefault(item.key, NO_TIME)  # until it is done, so that a file left by a kill says what is missing
    todo.sort(key=lambda item: skipped[item.key] != NO_TIME)  # what failed in an earlier call comes last
    tempo: dict[str, list[float]] = {}  # by kind, how many times longer than estimated its items took
    for item in todo:
        if deadline - time.monotonic() < item.seconds * statistics.median(tempo.get(item.kind, [1.0])):
            print(f"{item.key}: skipped, {skipped[item.key]}", flush=True)
            continue
        skipped[item.key] = "did not finish"
        files.write(results, out / files.FILE)
        started = time.monotonic()
        row, said = (recorded_apart if item.kind == "trace" else measured)(item, device, out)
        took = time.monotonic() - started
        if row is None:
            skipped[item.key], said = said, f"skipped, {said}"
        else:
            del skipped[item.key]
            rows[item.key] = row | {"call": len(results["calls"]) - 1, "took_s": round(took, 1)}
            tempo.setdefault(item.kind, []).append(took / item.seconds)
        files.write(results, out / files.FILE)
        print(f"{item.key}: {said} ({took:.1f} s, {(deadline - time.monotonic()) / 60:.1f} min left)", flush=True)
        free(device, item)
    files.write(results, out / files.FILE)


def measured(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """An item's row and its result in words; or None, and why there is no row."""
    try:
        with warnings.catch_warnings(), flags(item.tf32) as in_force:
            for name in item.speedups:  # what warns, in its own name, that it does nothing here is not timed as 1.00x
                warnings.filterwarnings("error", rf"{name}: ", UserWarning)
            row, said = MEASURES[item.kind](item, device, out)
            return item.description() | {"flags": in_force} | row, said
    except Exception as error:
        if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
            return None, "out of memory"
        if isinstance(error, UserWarning):
            return None, f"does not suit this device: {error}"
        if isinstance(error, LabkitError):
            return None, str(error)
        traceback.print_exception(error)
        return None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def recorded_apart(item: Item, device: torch.device, out: Path) -> tuple[dict | None, str]:
    """`measured`, in a process of its own: the profiler would stay in the way of the traces and timings to come."""
    try:
        return apart(measured, item, device, out)
    except LabkitError as error:
        return None, str(error)


def free(device: torch.device, item: Item) -> None:
    """Gives back what `item` left in memory. Raises `LabkitError` if it left the GPU in a state beyond recovery."""
    gc.collect()  # a step and its optimisers refer to each other
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            raise LabkitError(
                f"the GPU no longer answers after {item.key} ({error}). The results so far are written: "
                "run the same again to go on with the rest."
            ) from error
