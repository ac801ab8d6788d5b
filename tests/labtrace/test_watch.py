"""`labtrace watch`: any training script recorded as it is."""

import re
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import pytest

import labtrace

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
def script(tmp_path):
    """A function that writes a script with `LOOP` and these lines, and runs it, watched."""

    def run(lines, *options, arguments=(), torchrun=False):
        (tmp_path / "train.py").write_text(LOOP + textwrap.dedent(lines))
        under = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"] if torchrun else []
        command = [sys.executable, "-m", *under, "labtrace", "watch", *options, "train.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


def recorded_steps(path):
    return {number: len(rank.steps) for number, rank in labtrace.Trace(path).ranks.items()}


def test_some_steps_are_recorded_and_the_script_is_as_without_it(script, tmp_path):
    done = script(
        """
        for _ in range(12):
            update()
        print(sys.argv[1:], __name__, __file__)
        sys.exit(7)
        """,
        *("--steps", "4"),
        arguments=["--steps", "3", "-h"],
    )
    assert done.returncode == 7
    assert done.stdout == f"{['--steps', '3', '-h']} __main__ {tmp_path / 'train.py'}\n"
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 4}
    assert "4 steps of train.py" in done.stderr and "The processor spends" in done.stderr
    assert re.search(r"A step took [\d.]+ ms before, and [\d.]+ while it was recorded", done.stderr)


def test_a_step_has_all_optimisers_once(script, tmp_path):
    script(
        """
        other = torch.optim.Adam(net.parameters())
        for _ in range(12):
            update()
            update(other)
        """,
        *("--steps", "3"),
    )
    events = labtrace.Trace(tmp_path / "train.json.gz").ranks[0].recording.events
    updates = events["name"][events["name"].str.startswith("Optimizer.step#")]
    assert updates.value_counts().to_dict() == {"Optimizer.step#SGD.step": 3, "Optimizer.step#Adam.step": 3}


def test_another_optimiser_takes_over_where_the_first_steps_no_more(script, tmp_path):
    script(
        """
        update(torch.optim.Adam(net.parameters()))
        for _ in range(40):
            update()
        """,
        *("--steps", "3"),
    )
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 3}


def test_an_update_that_a_scaler_leaves_out_ends_a_step_too(script, tmp_path):
    script(
        """
        scaler = torch.amp.GradScaler("cpu")
        for number in range(12):
            factor = float("inf") if number == 8 else 1.0
            optimizer.zero_grad()
            scaler.scale(net(torch.rand(4, 8)).square().mean() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
        *("--steps", "4"),
    )
    events = labtrace.Trace(tmp_path / "train.json.gz").ranks[0].recording.events
    assert events["name"].str.startswith("Optimizer.step#").sum() == 3
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 4}


def test_what_there_is_is_written_if_the_script_fails(script, tmp_path):
    done = script(
        """
        for _ in range(9):
            update()
        raise ValueError("of the script")
        """
    )
    assert done.returncode == 1 and "ValueError: of the script" in done.stderr
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 3}


def test_a_script_that_ends_before_the_recording_is_told_so(script, tmp_path):
    done = script("update()")
    assert done.returncode == 0 and "ended after 1 steps, and 6 warm up" in done.stderr
    assert not list(tmp_path.glob("*.json.gz"))


def test_calls_of_a_network_are_steps_where_no_optimiser_is(script, tmp_path):
    lines = """
        class Encoder(nn.Sequential):
            pass

        encoder = Encoder(net)
        for _ in range(12):
            encoder(torch.rand(4, 8))
        """
    assert "no optimiser of PyTorch stepped: see --calls" in script(lines).stderr
    script(lines, "--calls", "Encoder", "--steps", "2")
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 2}


def test_stop_ends_the_script_after_the_recording(script):
    done = script("for _ in range(12): update()\nprint('to the end')", "--steps", "2", "--stop")
    assert done.returncode == 0 and done.stdout == "" and "2 steps of" in done.stderr


def test_environment_variables_that_the_script_sets_before_pytorch_count(script, tmp_path):
    (tmp_path / "settings.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch")
    program = [sys.executable, "-m", "labtrace", "watch", "early.py"]
    (tmp_path / "early.py").write_text("import sys\nprint('torch' in sys.modules)\nimport settings")
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_ctrl_c_reaches_the_script_and_what_there_is_is_written(tmp_path):
    lines = "import time\nfor _ in range(8):\n    update()\nprint('ready', flush=True)\ntime.sleep(100)"
    (tmp_path / "train.py").write_text(LOOP + lines)
    command = [sys.executable, "-m", "labtrace", "watch", "train.py"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # even where these tests run in the background
    with subprocess.Popen(command, cwd=tmp_path, preexec_fn=heard, **pipes) as process:
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=100)[1]
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors
    assert recorded_steps(tmp_path / "train.json.gz") == {0: 2}


def test_each_rank_writes_a_file_into_one_folder(script, tmp_path):
    done = script(
        """
        torch.distributed.init_process_group("gloo")
        net = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for _ in range(12):
            update(optimizer)
        torch.distributed.destroy_process_group()
        """,
        *("--steps", "2"),
        torchrun=True,
    )
    assert done.returncode == 0, done.stderr
    assert recorded_steps(tmp_path / "train") == {0: 2, 1: 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "3", "train.py"], "--step is not an option of watch"),
        (["missing.py"], "missing.py: there is no such script"),
        (["-m"], "A script is needed, or -m and a module"),
        (["--steps", "0", "train.py"], "each must be at least 1"),
    ],
)
def test_what_cannot_be_watched_is_said(words, message, tmp_path):
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-m", "labtrace", "watch", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_a_module_is_run_as_python_runs_it(tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "train.py").write_text(LOOP + "for _ in range(12): update()\nprint(sys.argv[1:], __package__)")
    command = [sys.executable, "-m", "labtrace", "watch", "--steps", "2", "-m", "tool.train", "--lr", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "['--lr', '3'] tool\n" and recorded_steps(tmp_path / "train.json.gz") == {0: 2}
