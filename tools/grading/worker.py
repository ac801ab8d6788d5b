"""The program inside the sandbox: runs the exercises of one submission, each in a process of its own.

stdin:  one line of JSON: {"setup": [[key, source], ...], "exercises": [[[key, source], ...], ...], "limits": {...}}
stdout: lines of JSON: {"cell": key, "output": ...}, an output in the notebook format; {"cell": key, "done": true};
        {"exercise": number, "ended": why} if the exercise's process did not live to its end; {"setup": true or false}

The setup cells are the course's own. They run once, in this process. Then each exercise, an answer and its check, runs
in a fork of it. So a crash, an endless loop or a full memory costs one exercise, and no exercise can spoil the next one.
Limits are kept by this process: in the sandbox it is process 1, which no other process there can stop.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time

import psutil
from traitlets.config import Config

from tools.grading.shell import Cells, Publisher, Result, Sender, Shell

PR_SET_DUMPABLE = 4
ENDS = {
    "crashed": "the process ended before the cell did ({})",
    "time": "it ran for more than {exercise_seconds} seconds: is there an endless loop?",
    "memory": "it took more than {memory_mb} MB of memory",
    "processes": "it started more than {processes} processes",
    "output": "it wrote too much output",
}


def watch(pid: int, pipe: int, send: Sender, keys: set[str], limits: dict) -> str:
    """Pass on what the exercise's process writes; why it ended early, else "".

    CPU time counts, so that a busy machine costs nobody points. Four times as long by the clock ends a sleeping cell.
    """
    begun, received, rest, ended = time.monotonic(), 0, b"", ""
    while not ended:
        if select.select([pipe], [], [], 0.1)[0]:
            part = os.read(pipe, 1 << 16)
            received += len(part)
            rest = pass_on(rest + part, send, keys)
        else:
            part = b""
        if not part:  # nothing, or nothing any more
            time.sleep(0.01)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                while select.select([pipe], [], [], 0)[0] and (part := os.read(pipe, 1 << 16)):
                    rest = pass_on(rest + part, send, keys)
                code = os.waitstatus_to_exitcode(status)
                return "" if code == 0 else f"crashed: {ENDS['crashed'].format(described(code))}"
        seconds, megabytes, processes = usage()
        ended = next(
            (
                why
                for why, over in {
                    "time": max(seconds, (time.monotonic() - begun) / 4) > limits["exercise_seconds"],
                    "memory": megabytes > limits["memory_mb"],
                    "processes": processes > limits["processes"],
                    "output": received > 10 * limits["output_characters"],
                }.items()
                if over
            ),
            "",
        )
    kill(pid)
    os.waitpid(pid, 0)
    return f"{ended}: {ENDS[ended].format(**limits)}"


def pass_on(text: bytes, send: Sender, keys: set[str]) -> bytes:
    """Send each whole line that is a message about one of these cells; the rest."""
    *lines, rest = text.split(b"\n")
    for line in lines:
        try:
            message = json.loads(line)
            if message["cell"] in keys:
                send({key: message[key] for key in ("cell", "output", "done") if key in message})
        except (ValueError, TypeError, LookupError):
            continue  # an answer wrote into the pipe
    return rest


def described(code: int) -> str:
    """An exit status in words."""
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


def usage() -> tuple[float, float, int]:
    """CPU seconds, megabytes and number of this process's children, theirs included."""
    seconds = megabytes = processes = 0
    for process in psutil.Process().children(recursive=True):
        try:
            times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            continue  # it has just ended
        seconds += times.user + times.system + times.children_user + times.children_system
        megabytes += (memory.rss - memory.shared) / 1e6
        processes += 1
    return seconds, megabytes, processes


def kill(pid: int) -> None:
    """End an exercise's process and all that it started: in the sandbox, all processes but this one."""
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
        with contextlib.suppress(psutil.Error):
            process.kill()


def run_exercise(shell: Shell, cells: Cells, send: Sender, limits: dict) -> str:
    """Run an exercise in a fork; why it ended early, else ""."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(send.file)
            leave_out(2)
            os.chdir(tempfile.mkdtemp())
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            set_dumpable(True)
            for limit, most in ((resource.RLIMIT_DATA, limits["memory_mb"] * 10**6), (resource.RLIMIT_CORE, 0)):
                resource.setrlimit(limit, (most, most))
            shell.run(cells, Sender(writing), limits["output_characters"])
            os._exit(0)  # not through what an answer may have registered for the end
        finally:
            os._exit(1)
    os.close(writing)
    try:
        return watch(pid, reading, send, {key for key, _ in cells}, limits)
    finally:
        os.close(reading)
        if os.getpid() == 1:
            kill(pid)  # and remove what it left behind
            for entry in os.scandir("/tmp"):
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir(follow_symlinks=False) else os.remove(entry)
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)


def leave_out(*files: int) -> None:
    """Nothing comes from these files of the process any more, and nothing goes there."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nothing, file)
    os.close(nothing)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of the same user may open this process's memory and files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(dumpable))


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.readline())
    limits, send = request["limits"], Sender(os.dup(1))
    leave_out(0, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))  # with this process the sandbox ends
    signal.alarm(limits["whole_seconds"])
    set_dumpable(False)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.xmode = "Plain"  # not the source of checks, and not seconds for a deep recursion
    shell = Shell.instance(config=config, display_pub_class=Publisher, displayhook_class=Result)
    ready = shell.run(request["setup"], send, limits["output_characters"])
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    send({"setup": ready})
    for number, cells in enumerate(request["exercises"] if ready else []):
        if ended := run_exercise(shell, cells, send, limits):
            send({"exercise": number, "ended": ended})


if __name__ == "__main__":
    main()
