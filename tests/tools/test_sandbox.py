"""The sandboxes of `make grade`: what they are started with, and what they leave alone."""

import os
import sys
from pathlib import Path

import pytest

from tools.grading import sandbox
from tools.grading.packages import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of namespaces is Linux's")

LIMITS = dict(exercise_seconds=1, memory_mb=1000)


@pytest.mark.slow
def test_a_container_gets_neither_network_nor_sources(tmp_path, monkeypatch):
    """The command for podman, which stands here for a program that starts the worker without a container."""
    words = tmp_path / "words"
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    (tmp_path / "own").mkdir()
    run = f"cd {tmp_path} && TMPDIR={tmp_path}/own exec {sys.executable} -m tools.grading.worker"
    podman.write_text(f'#!/bin/sh\necho "$@" >> {words}\n[ $1 != run ] || {{ {run}; }}\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{podman.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    sandbox.works.cache_clear()
    try:
        assert sandbox.choose() == "container"
    finally:
        sandbox.works.cache_clear()
    run = next(line for line in words.read_text().splitlines() if line.startswith("run"))
    for option in ("--network=none", "--read-only", "--pids-limit=", "--memory=", "--cap-drop=ALL", "labkit-grading"):
        assert option in run
    shown = [word for word in run.split() if word.startswith("--volume=")]
    assert [word.rpartition(":/")[2] for word in shown] == ["course:ro", "course/data:ro"]


def test_without_a_sandbox_nothing_runs_unless_asked_for(monkeypatch):
    monkeypatch.setattr(sandbox, "works", lambda kind: "" if kind == "none" else "not here")
    with pytest.raises(RuntimeError, match="ISOLATION=none"):
        sandbox.choose()
    assert sandbox.choose("none") == "none"


@pytest.mark.slow
def test_where_its_own_folder_cannot_be_written_nobody_else_s_files_go(tmp_path, monkeypatch):
    """Python then takes another folder for temporary files: on a full disk, that of the system."""
    (tmp_path / "somebody_s").mkdir()
    (tmp_path / "somebody_s" / "thesis.txt").touch()
    variables = [f"TMPDIR={tmp_path / 'full'}", f"TEMP={tmp_path / 'somebody_s'}"]
    command = ["env", *variables, sys.executable, *sandbox.WORKER]
    monkeypatch.setitem(sandbox.MAKE, "none", lambda *_: (command, []))
    worker = sandbox.Sandbox("none", [], LIMITS)
    try:
        assert worker.run(["2 * 3"])[1].startswith("crashed")
        worker.end_exercise()
    finally:
        worker.close()
    assert (tmp_path / "somebody_s" / "thesis.txt").exists()


@pytest.mark.slow
def test_the_folder_of_python_may_be_a_link(tmp_path, monkeypatch):
    if reason := sandbox.works("namespaces"):
        pytest.skip(reason)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / Path(sys.executable).name))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    sandbox.Sandbox("namespaces", [], LIMITS).close()
