"""The program inside the sandbox: runs exercises, each in a new process.

It answers a line of JSON on stdin with a line of JSON on stdout:

    {"setup": [source, ...], "limits": {"exercise_seconds": 30, "memory_mb": 4000}}    once, first
    [source, ...]                                                                      an exercise, its check last
    {"ended": "", "cells": [{"text": "...", "error": null}, ...]}                      an answer

`cells` has the output and the error of each cell that ran to its end. `ended` says why the exercise was stopped early,
and is empty if it was not.

The setup cells are the course's own. They run once, in this process, which takes seconds. Then each exercise, an answer
and its check, runs in a fork of it. So a crash, an endless loop or a full memory costs one exercise. Nothing remains of
it for the next one, which may be another student's: this process does not run answers, and in the sandbox it is
process 1, which no other process there can stop. It keeps the limits.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

PR_SET_DUMPABLE = 4
IDLE_SECONDS = 300
MAX_CHARACTERS = 200_000  # that a cell may print; the middle of more is cut
MAX_BYTES = 20_000_000  # of an exercise's answer
CUT = "\n... a part of the output was cut\n"


class Printed(io.TextIOBase):
    """The stdout and stderr of a cell. Of very much, it keeps the beginning and the end, where a check says "right"."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        if len(self.text) > MAX_CHARACTERS:
            self.text = self.text[: MAX_CHARACTERS // 2] + CUT + self.text[-MAX_CHARACTERS // 4 :]
        return len(text)


class Shell(InteractiveShell):
    """IPython as Jupyter's kernel has it, but what a cell displays is printed as text."""

    error: dict | None = None

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        self.error = {"ename": etype.__name__, "evalue": str(evalue)[:10_000], "traceback": stb}

    def run(self, source: str) -> dict:
        """Run a cell; what it printed, and its error or None."""
        self.error, printed = None, Printed()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = self.run_cell(source, store_history=True)
        if not result.success and self.error is None:  # its traceback cannot be shown
            error, text = result.error_in_exec or result.error_before_exec, ""
            with contextlib.suppress(BaseException):
                text = str(error)
            self.error = {"ename": type(error).__name__, "evalue": text, "traceback": [text]}
        return {"text": printed.text, "error": self.error}


def run_exercise(shell: Shell, line: bytes, file: socket.socket, secret: str, limits: dict) -> None:
    """In a fork: let go of this program's files, and run the cells, the later ones even if an earlier one fails.

    Each result is a line sent to `file`, a socket, after a secret that an answer, which can write there, does not know.
    """
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1, 2):
            os.dup2(nothing, own)
        os.setsid()
        os.chdir(tempfile.mkdtemp())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        set_dumpable(True)
        for limit, most in ((resource.RLIMIT_DATA, limits["memory_mb"] * 10**6), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        cells = json.loads(line)
        for number, source in enumerate(cells, start=1):
            if number == len(cells):
                shell.ast_transformers = []  # the check is the course's own: no rule on answers holds for it
            file.sendall(f"{secret}{json.dumps(shell.run(source))}\n".encode())
        os._exit(0)  # not through what an answer may have registered for the end
    finally:
        os._exit(1)


def results_in(text: bytes, secret: str) -> Iterator[dict]:
    """The results among lines, into which an answer may have written its own: those after the secret."""
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):  # cut
            if line.startswith(secret.encode()):
                yield json.loads(line[len(secret) :])


def received(end: socket.socket) -> bytes:
    """What has come, without waiting for more. Nobody can read it a second time, as an answer could a file."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while len(found) < MAX_BYTES and (part := end.recv(1 << 20, socket.MSG_DONTWAIT)):
            found += part
    return found


def watch(pid: int, limits: dict, results: socket.socket) -> tuple[str, bytes]:
    """Wait for the process of an exercise, and stop it at a limit; why it ended early, else "", and its results.

    CPU time counts, so that a busy machine costs nobody points. Four times as long by the clock ends a sleeping cell.
    """
    begun, pause, text = time.monotonic(), 0.01, b""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        text = (text + received(results))[:MAX_BYTES]
        if done:
            code = os.waitstatus_to_exitcode(status)
            how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
            return f"crashed: the process ended before the cell did ({how})" if code else "", text
        seconds, megabytes = usage()
        why = ""
        if max(seconds, (time.monotonic() - begun) / 4) > limits["exercise_seconds"]:
            why = f"time: it ran for more than {limits['exercise_seconds']} seconds: is there an endless loop?"
        elif megabytes > limits["memory_mb"]:
            why = f"memory: it took more than {limits['memory_mb']} MB of memory"
        if why:
            kill_children()
            os.waitpid(pid, 0)
            return why, text
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def usage() -> tuple[float, float]:
    """CPU seconds and megabytes of this process's children, theirs included: so a fork bomb is over soon."""
    seconds = megabytes = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times, memory = process.cpu_times(), process.memory_info()
            seconds += times.user + times.system + times.children_user + times.children_system
            megabytes += (memory.rss - memory.shared) / 1e6
    return seconds, megabytes


def kill_children() -> None:
    """End an exercise's process and all that it started: in the sandbox, all processes but this one."""
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()


def clear() -> None:
    """Remove all processes and files that an exercise has left behind."""
    kill_children()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    folders = [tempfile.gettempdir(), *(["/dev/shm"] if os.getpid() == 1 else [])]
    for command in (["chmod", "-R", "u+rwX", *folders], ["find", *folders, "-mindepth", "1", "-delete"]):
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of the same user may open this process's memory and files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(dumpable))


def reply(ended: str, cells: list[dict]) -> None:
    """Answer a request."""
    print(json.dumps({"ended": ended, "cells": cells}), flush=True)


def main() -> None:
    """Answer requests until there are no more, or none comes for `IDLE_SECONDS`."""
    request = json.loads(sys.stdin.buffer.readline())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_dumpable(False)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.xmode = "Plain"  # not the source of checks, and not seconds for a deep recursion
    shell = Shell.instance(config=config)
    reply("", [shell.run(source) for source in request["setup"]])
    while select.select([0], [], [], IDLE_SECONDS)[0] and (line := sys.stdin.buffer.readline()):
        secret = secrets.token_hex()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            if not (pid := os.fork()):
                ours.close()
                run_exercise(shell, line, theirs, secret, request["limits"])
            ended, results = watch(pid, request["limits"], ours)
            clear()
            reply(ended, [*results_in(results, secret)])
    os._exit(0)  # at once: to take Python apart costs seconds


if __name__ == "__main__":
    main()
