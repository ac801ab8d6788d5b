"""What `labkit train` prints: lines for people, one object for scripts, or nothing."""

import json
import math
import re
import subprocess
import sys
import warnings

import pytest

import labkit
from labkit import bars
from labkit.commands import printing
from labkit.training import callbacks
from labkit.training.run import Run

SMALL = ["--size", "16", "--ngf", "4", "--workers", "0", "--device", "cpu", "--no-tensorboard"]


@pytest.fixture
def train(call, tmp_path):
    return lambda *options, steps=2: call("train", "--out", tmp_path / "run", *SMALL, "--steps", steps, *options)


@pytest.mark.parametrize("program", ["labtrace", "labkit", "labcourse"])
def test_each_command_names_itself(program):
    done = subprocess.run([sys.executable, "-m", program, "--version"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{program} {labkit.__version__}\n", "")


def test_json_is_all_there_is_on_standard_output_and_nothing_after_an_error(train, tmp_path):
    status, out, error = train("--json")
    result = json.loads(out)
    assert status == 0 and out.count("\n") == 1 and "2/2" in error
    status, nothing, error = train("--json", "--speedups", "bf61")
    assert (status, nothing) == (1, "") and "did you mean 'bf16'" in error
    assert list(result) == ["folder", "steps", "losses", "seconds", "scores"]
    assert result["folder"] == str(tmp_path / "run") and result["steps"] == 2 and result["seconds"] > 0
    assert {"fg", "bg"} <= result["scores"].keys() and {"G_A", "D_A"} <= result["losses"].keys()


@pytest.mark.parametrize(("rank", "said"), [(0, "done\n"), (1, "")])
def test_of_several_ranks_with_json_the_first_alone_prints(capsys, monkeypatch, rank, said):
    monkeypatch.setattr("labkit.ranks.number", lambda: rank)
    with printing(as_json=True):
        print("done")
    assert capsys.readouterr() == ("", said)


def test_quiet_prints_errors_only(train, monkeypatch):
    def warns(*_):
        warnings.warn("all alike", stacklevel=1)
        return {"fg": 1.0, "bg": 1.0}

    monkeypatch.setattr("labkit.measure.quality.quality", warns)
    assert train("--quiet") == (0, "", "")
    status, out, error = train("--quiet", "--ngf", "5")
    assert (status, out) == (1, "") and "ngf=4 there, 5 here" in error
    status, out, _ = train("--quiet", "--json", steps=3)
    assert status == 0 and json.loads(out)["steps"] == 3


def test_quiet_does_not_hide_how_to_go_on_after_ctrl_c(train, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt("stopped after step 1 of 2")

    monkeypatch.setattr("labkit.training.fit.fit", stopped)
    assert train("--quiet") == (130, "", "labkit: stopped after step 1 of 2\n")


def test_without_a_terminal_the_bar_is_drawn_now_and_then(train, monkeypatch):
    _, out, error = train(steps=10)
    states = [line for line in error.split("\r") if "/10" in line]
    assert len(states) <= 3 and "10/10" in states[-1] and "loss_G=" in states[-1] and "step/s" in states[-1]
    assert "10 steps done" in out and re.search(r"fg \d+\.\d\d %", out)
    monkeypatch.setattr(bars, "INTERVAL", 0)
    assert len([line for line in train(steps=20)[2].split("\r") if "/20" in line]) > 9


def test_the_bar_of_a_run_that_resumes_counts_on_and_has_two_numbers_beside_it(monkeypatch):
    drawn, run = callbacks.Progress(), Run(step=None, steps=5, data=None, done=2)
    run.losses = {"D_A": [1.0], "D_B": [0.5], "G_A": [2.0], "cycle_A": [4.0], "idt_A": [math.nan]}
    for terminal, seconds in ((False, 30), (True, 0.1)):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        drawn.on_start(run)
        drawn.on_step(run)
        assert (drawn.bar.n, drawn.bar.total, drawn.bar.mininterval) == (3, 5, seconds)
        drawn.on_report(run)
        assert drawn.bar.postfix == "loss_G=6.00, loss_D=1.50", "two numbers, however many losses there are"
        drawn.on_end(run)


def test_tensorboard_is_the_logger_where_it_is_installed(call, train, monkeypatch, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is optional")
    train()
    assert not (tmp_path / "run" / "tensorboard").exists()
    run = ("train", "--out", tmp_path / "run", *SMALL[:-1])
    call(*run, "--steps", "3")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    assert call(*run, "--steps", "4")[0] == 0
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
