"""A visit to a GPU that is rented by the minute: CycleGAN's step measured on it, what matters most first.

    python -m benchmarks.authoring.visit out/visit                     # 480 s; again: what is missing
    python -m benchmarks.authoring.visit out/rehearsal --device cpu    # tiny networks, to see that all of it runs
    python -m benchmarks.authoring.evidence h200_two out/visit         # then, anywhere: into data/

`ITEMS` has what is measured, in this order; items.py measures it, and docs/trust.md has what is predicted for it.

results.json is written after each measurement, so whatever ends a call costs one measurement, and the same call again
continues. Each item runs in a process of its own: a crash, a hang, or what the profiler and cuDNN leave behind costs
this item alone. One that fails is tried once more, after all others. "skipped" says why an item is not finished.
"""

import argparse
import functools
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.authoring import items
from benchmarks.authoring.items import COMPILED, LAUNCHED, NEW, NEW_FLOAT32, OLD, PLAIN, SIZES, STREAMS, Place
from labkit.devices import pick_device
from labkit.errors import LabkitError
from labkit.measure import flags, stamp
from labkit.measure.tables import SURVEY_FORMAT, read_results, write_results
from labkit.variants import nhwc_ends, nhwc_norm
from labkit.variants.compile import Compile

RESULTS_FILE = "results.json"
UNTRIED, UNFINISHED = "not begun", "did not finish"
# Seconds to begin an item, for `AHEAD`, and to import; times its estimate an item may take.
LEAST_S, WAIT_S, START_S, LIMIT = 15, 45, 60, {"cuda": 1.5, "cpu": 15}


class Item(NamedTuple):
    """Something to measure, and about how many seconds that takes on an H200."""

    measure: Callable[[Place], items.Found]
    estimate_s: float


BATCH_16 = {"plain": PLAIN, "old": OLD, "new": NEW, "compile": COMPILED}
BATCH_1 = {"plain": PLAIN, "old": OLD, "new": NEW, "new, streams": STREAMS}
# A launched twin names a graph's kernels; the old stack's graph is in data/. Graphs come first: before CUDA 13.1 Update
# 1 only the first recording of a process has right correlation ids of a graph's kernels (see `labcourse.gpu_trace`).
TWINS = {"new": NEW, "new, launched": LAUNCHED, "old, launched": OLD[1:]}
# The seconds are estimates, from what took as long on an H200 before ("took_s" in data/results/h200.json).
ITEMS = {
    "device": Item(items.device, 5),
    "right": Item(items.right, 60),
    "batch 16": Item(functools.partial(items.in_turn, "batch 16", BATCH_16, {"new": NEW}, 1), 130),
    "batch 1": Item(functools.partial(items.in_turn, "batch 1", BATCH_1, TWINS, 4), 55),
    "updates": Item(items.updates, 45),
    "convolutions": Item(items.convolutions, 40),
    "tiles": Item(items.tiles, 100),
}

# Steps whose kernels and networks are compiled ahead, each in a process of its own, while "right" runs: one after the
# other would take half of the visit. True for a large batch.
AHEAD = ((COMPILED, True), (NEW, True), (NEW, False), (NEW_FLOAT32, True), (NEW_FLOAT32, False), (("nhwc",), False))


def visit(out: Path, device: str = "cuda", seconds: float = 480.0) -> Path:
    """Measures what is missing in a folder, until the time is up. Returns the path of results.json.

    Raises:
        LabkitError: the folder cannot be written to, or has results of the other kind of device.
    """
    deadline, file = time.monotonic() + seconds, out / RESULTS_FILE
    results = {"format": SURVEY_FORMAT, "stamp": {"ran_on": device}, "rows": {}}
    results["skipped"] = dict.fromkeys(ITEMS, UNTRIED)
    if file.exists():
        results = read_results(file)
    if results["stamp"]["ran_on"] != device:
        raise LabkitError(f"{file} was measured on {results['stamp']['ran_on']}, not {device}: use another folder.")
    todo = sorted(results["skipped"], key=lambda name: results["skipped"][name] not in (UNTRIED, UNFINISHED))
    waiting = start(out, device)  # for its item, as importing takes as long as some of them
    ahead, again = list[subprocess.Popen](), list[str]()
    for name in itertools.chain(todo, again):  # an iterator sees what is appended meanwhile
        if (began := time.monotonic()) > deadline - LEAST_S:
            break
        if name == "right":
            ahead = [begin(start(out, device), str(one)) for one in range(len(AHEAD) if device == "cuda" else 1)]
        else:
            wait(ahead, began + WAIT_S)  # no compiler is to disturb the timing
        results["skipped"][name] = UNFINISHED
        write_results(results, file)
        process, waiting = begin(waiting, name), start(out, device)
        wait([process], min(time.monotonic() + START_S + LIMIT[device] * ITEMS[name].estimate_s, deadline))
        results, took = read_results(file), time.monotonic() - began
        if results["skipped"].get(name) == UNFINISHED and time.monotonic() < deadline:  # it did not say why itself
            results["skipped"][name] = f"its process ended after {took:.0f} s, with exit code {process.returncode}"
            if begun := results["rows"].get(name, {}).get("begun"):
                results["rows"][name]["fails"][begun] = results["skipped"][name]
        write_results(results, file)
        print(f"{name}: {results['skipped'].get(name, 'done')}, after {took:.1f} s", flush=True)
        if name in results["skipped"] and name not in again:
            again.append(name)
    wait([*ahead, waiting], time.monotonic())
    return file


def start(out: Path, device: str) -> subprocess.Popen:
    """A process that imports all that it needs, and waits for the name of its item. It ends with this process."""
    command = [sys.executable, "-m", "benchmarks.authoring.visit", str(out), f"--device={device}", "--serve"]
    # Triton asks for its interpreter when it is imported; progress bars would fill the log.
    environment = os.environ | {"TRITON_INTERPRET": str(int(device == "cpu")), "TQDM_DISABLE": "1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True)


def begin(process: subprocess.Popen, name: str) -> subprocess.Popen:
    """Tells a process the name of its item."""
    print(name, file=process.stdin, flush=True)
    return process


def wait(processes: list[subprocess.Popen], until: float) -> None:
    """Waits for the end of processes, then kills those left. For their end not long: a GPU's driver may hold them."""
    for process in processes:
        for patience in (max(0.0, until - time.monotonic()), 10.0):
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()


def serve(out: Path, device: str) -> None:
    """Runs the item whose name comes on the standard input."""
    importlib.import_module("torch._dynamo")  # the first optimiser would
    name = sys.stdin.readline().strip()
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()  # nothing comes but the end
    if device == "cpu":  # Triton's interpreter is slow, and inductor takes minutes
        os.environ["TRITON_INTERPRET"] = str(int(name in ("right", "tiles")))  # else `nhwc` does nothing
        nhwc_norm.PIXELS = nhwc_ends.TILE = 512
        Compile.backend = "aot_eager"
    if name.isdecimal():
        (stack, large), place = AHEAD[int(name)], Place({}, pick_device(device), out)
        place.step(stack)(*place.batch(large))
    elif name:
        measure(name, out, device)


def measure(name: str, out: Path, device: str) -> None:
    """Runs an item, and writes results.json after each of its measurements. An error becomes the item's result."""
    results = read_results(out / RESULTS_FILE)
    try:
        place = Place(results["rows"], pick_device(device), out)
        results["stamp"] = stamp() | {"ran_on": device}
        with flags("default"):
            for found in ITEMS[name].measure(place):
                write_results(results, out / RESULTS_FILE)
                print(f"{name}: {found}", flush=True)
        del results["skipped"][name]
    except Exception as error:
        traceback.print_exc()
        results["skipped"][name] = items.why(error)
    write_results(results, out / RESULTS_FILE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder; results in it are continued")
    parser.add_argument("--device", choices=SIZES, default="cuda")
    parser.add_argument("--seconds", type=float, default=480.0, help="after which it ends, whatever is left")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.out, arguments.device)
    else:
        print(visit(arguments.out, arguments.device, arguments.seconds))
