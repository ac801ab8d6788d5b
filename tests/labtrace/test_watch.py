"""`labtrace watch`: any training script recorded as it is."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest

import labtrace.watch
from labtrace.errors import LabError

LOOP = """
import sys, torch
from torch import nn

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.01)

def update(optimizer=optimizer):
    optimizer.zero_grad()
    net(torch.rand(4, 8)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts these words, watched, in a process that has imported PyTorch, without the report."""

    def begin(*words, steps=10, calls="", stop=False, checks=None):
        settings = dict(steps=steps, warmup=5, calls=calls, stop=stop, out=str(tmp_path / "train.json.gz"))
        return forked.start(tmp_path / "said", _watched, tmp_path, checks, json.dumps(settings), *words)

    return begin


def _watched(folder, checks, settings, *words):
    """`checks` is how often the memory may be looked at: more seem too much."""
    os.chdir(folder)
    sys.argv = ["", settings, *words]
    labtrace.watch.stamp = lambda: {"labkit": str(sys.modules["torch"].hann_window(3))}  # which a recording would show
    if checks is not None:
        labtrace.watch.peak_memory, labtrace.watch.MOST_MEMORY = itertools.count().__next__, checks
    labtrace.watch.subprocess = SimpleNamespace(run=lambda *_, **__: None)
    labtrace.watch.main()


@pytest.fixture
def script(start, tmp_path):
    """A function that writes a script with `LOOP` and these lines, runs it, watched: its output and status."""

    def run(lines, **options):
        (tmp_path / "train.py").write_text(LOOP + textwrap.dedent(lines))
        process = start("train.py", **options)
        process.join(100)
        return (tmp_path / "said").read_text(), process.exitcode

    return run


def recorded_steps(path):
    return {number: len(rank.steps) for number, rank in labtrace.Trace(path).ranks.items()} if path.exists() else {}


@pytest.mark.slow
def test_some_steps_are_recorded_and_the_script_is_as_without_it(tmp_path):
    lines = """
        for _ in range(12):
            update()
        print(sys.argv[1:], __name__, __file__, early)
        sys.exit(7)
        """
    # Variables that PyTorch reads may still be set there, and libraries ask whether it is here before they import it.
    early = "import importlib.util, sys\nearly = 'torch' in sys.modules\nimportlib.util.find_spec('torch')"
    (tmp_path / "train.py").write_text(early + LOOP + textwrap.dedent(lines))
    command = [sys.executable, "-m", "labtrace", "watch", "--steps", "4", "train.py", "--steps", "3", "-h"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 7
    assert done.stdout == f"{['--steps', '3', '-h']} __main__ {tmp_path / 'train.py'} False\n"
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 4}
    assert "4 steps of train.py" in done.stderr and "of the time" in done.stderr  # the rest depends on the machine
    assert re.search(r"A step took [\d.]+ ms before, and [\d.]+ while it was recorded", done.stderr)
    assert re.search(r"kept [\d.]+ of \d+ cores busy", done.stderr)


PROFILED = """
for _ in range({}):
    update()
with torch.profiler.profile() as own:  # PyTorch runs only one. A second one would end the process
    for _ in range(12):
        update()
own.export_chrome_trace("own.json")
"""
THREADS = """
import threading

def train():
    net = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range({}):
        net(torch.rand(32, 64)).square().mean().backward()
        optimizer.step()
    trained.append(net)

trained, threads = [], [threading.Thread(target=train) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(2 - len(trained))
"""
ALREADY = "nothing is recorded, since the script has a profiler of its own"
# A script and how many of its steps are to be recorded; its status, those that are recorded, and what is said.
SCRIPTS = {
    "another optimiser takes over where the first steps no more": (
        """
        first = torch.optim.Adam(net.parameters())
        update(first)
        for _ in range(40):
            update()
        """,
        3, 0, {0: 3}, "3 steps of",
    ),
    "optimisers that step in the backward pass end one step": (
        """
        optimizers = {weight: torch.optim.SGD([weight], 0.01) for weight in net.parameters()}
        for weight in net.parameters():
            weight.register_post_accumulate_grad_hook(lambda weight: optimizers[weight].step())
        for _ in range(20):
            net(torch.rand(4, 8)).square().mean().backward()
        """,
        10, 0, {0: 10}, "10 steps of",
    ),
    "an update that a scaler leaves out ends a step, too": (
        """
        scaler = torch.amp.GradScaler("cpu")
        for number in range(12):
            factor = float("inf") if number == 8 else 1.0
            scaler.scale(net(torch.rand(4, 8)).square().mean() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        """,
        10, 0, {0: 6}, "6 steps of",
    ),
    "what there is is written if the script fails": (
        "for _ in range(9): update()\nraise ValueError('of the script')", 10, 1, {0: 3}, "ValueError: of the script",
    ),
    "a script that ends before the recording": ("update()", 10, 0, {}, "ended after 1 steps, and 6 warm up"),
    "a profiler of its own, at once": (PROFILED.format(0), 10, 0, {}, ALREADY),
    "a profiler of its own, in the warm-up": (PROFILED.format(3), 10, 0, {}, ALREADY),
    "a profiler of its own, where the recording begins": (PROFILED.format(5), 10, 0, {}, ALREADY),
    "of several threads that train one is recorded": (THREADS.format(60), 10, 0, {0: 10}, "10 steps of"),
    "and none is hurt": (THREADS.format(9), 10, 0, {}, "nothing is recorded: the thread that trained"),
    "a profiler of its own, in the recording": (PROFILED.format(9), 10, 0, {0: 3}, "3 steps of"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "steps", "status", "recorded", "told"), SCRIPTS.values(), ids=SCRIPTS)
def test_what_is_recorded_of_a_script_and_what_is_said(script, tmp_path, lines, steps, status, recorded, told):
    said, ended = script(lines, steps=steps)
    assert (ended, recorded_steps(tmp_path / "train.json.gz")) == (status, recorded) and told in said, said


def test_a_step_of_many_passes_ends_early_where_its_events_fill_the_memory(script, tmp_path):
    lines = """
        for _ in range(9):
            for _ in range(9):
                net(torch.rand(4, 8)).square().mean().backward()
            optimizer.step()
        print("to the end")
        """
    said, status = script(lines, checks=2)
    assert status == 0 and "has grown by" in said and "parts of one step of train.py" in said and "to the end" in said
    rank = labtrace.Trace(tmp_path / "train.json.gz").ranks[0]
    assert rank.steps.empty and (rank.operators["name"] == "aten::linear").sum() == 4  # two of the step's nine passes


@pytest.mark.parametrize("taken", ["train.json.gz", "train.html", "train"])
def test_an_earlier_recording_or_page_stays(tmp_path, monkeypatch, taken):
    monkeypatch.chdir(tmp_path)
    assert labtrace.watch.unused("train") == Path("train.json.gz")
    for name in (taken, "train-2.json.gz"):
        (tmp_path / name).touch()
    assert labtrace.watch.unused("train") == Path("train-3.json.gz")


def test_calls_of_a_network_are_steps_where_no_optimiser_is(script, tmp_path):
    lines = """
        class Encoder(nn.Sequential):
            pass

        encoder = Encoder(net)
        for _ in range(12):
            encoder(torch.rand(4, 8))
        """
    assert "no optimiser of PyTorch stepped. With --calls NAME a step is a call of a network" in script(lines)[0]
    assert "Here are Encoder.\n" in script(lines, calls="Enc")[0]
    script(lines, calls="Encoder", steps=2)
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 2}


def test_a_step_has_all_optimisers_once_and_stop_ends_the_script_after_the_recording(script, tmp_path):
    lines = """
        other = torch.optim.Adam(net.parameters())
        for _ in range(12):
            update()
            update(other)
        print("to the end")
        """
    said, status = script(lines, steps=3, stop=True)
    assert status == 0 and "3 steps of" in said and "to the end" not in said
    rank = labtrace.Trace(tmp_path / "train.json.gz").ranks[0]
    names, operators = rank.recording.events["name"], set(rank.operators["name"])
    updates = names[names.str.startswith("Optimizer.step#")].value_counts().to_dict()
    assert updates == {"Optimizer.step#SGD.step": 3, "Optimizer.step#Adam.step": 3}
    assert "aten::mean" in operators and "aten::hann_window" not in operators, "the stamp was made in a step"


def test_ctrl_c_reaches_the_script_and_what_there_is_is_written(start, tmp_path):
    lines = "import time\nfor _ in range(8):\n    update()\nopen('ready', 'w')\ntime.sleep(100)"
    (tmp_path / "train.py").write_text(LOOP + lines)
    process = start("train.py")
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(100)
    assert process.exitcode and "KeyboardInterrupt" in (tmp_path / "said").read_text()
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 2}


def test_a_module_is_run_as_python_runs_it(start, tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "train.py").write_text(LOOP + "for _ in range(12): update()\nprint(sys.argv[1:], __package__)")
    start("-m", "tool.train", "--lr", "3", steps=2).join(100)
    assert (tmp_path / "said").read_text().startswith("labtrace: watch: 2 steps of ")
    assert (tmp_path / "said").read_text().endswith("['--lr', '3'] tool\n")


@pytest.mark.slow
def test_the_program_to_try_it_on_can_be_watched(start, tmp_path):
    program = Path(__file__).parents[2] / "examples" / "watched" / "shapes.py"
    start(str(program), "9", steps=2).join(100)
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 2} and "loss " in (tmp_path / "said").read_text()


@pytest.mark.slow
def test_each_rank_writes_a_file_into_one_folder(tmp_path):
    lines = """
        import os
        torch.distributed.init_process_group("gloo")
        net = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for _ in range(12):
            update(optimizer)
        torch.distributed.destroy_process_group()
        os._exit(0)  # without Python's own end, in which PyTorch now and then aborts a process that had DDP
        """
    (tmp_path / "train.py").write_text(LOOP + textwrap.dedent(lines))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "labtrace", "watch", "--steps", "2", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert recorded_steps(tmp_path / "train") == {0: 2, 1: 2}
    assert f"labtrace report {tmp_path / 'train'} tells who waited for whom" in done.stderr


def test_the_memory_is_not_known_where_the_system_does_not_tell(monkeypatch):
    assert labtrace.watch.peak_memory() > 1e6
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert labtrace.watch.peak_memory() == 0


REFUSED = [
    (["--step", "3", "train.py"], 10, "--step is not an option of watch"),
    (["missing.py"], 10, "missing.py: there is no such script"),
    (["-m"], 10, "A script is needed, or -m and a module"),
    ([__file__], 0, "each must be at least 1"),
]


@pytest.mark.parametrize(("words", "steps", "message"), REFUSED)
def test_what_cannot_be_watched_is_said(words, steps, message):
    with pytest.raises(LabError, match=re.escape(message)):
        labtrace.watch.watch(words, steps=steps)
