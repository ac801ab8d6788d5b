"""The program inside the sandbox: runs exercises, each in a process of its own.

stdin:  messages, each after its length in 12 digits: first {"setup": [[key, source], ...], "limits": {...}},
        then one after another the exercises, each [[key, source], ...]
stdout: lines of JSON about the cells: {"cell": key, "output": ...}, an output in the notebook format; {"cell": key,
        "done": true}. Those of an exercise follow after a secret of its own.
stderr: lines of JSON about processes: {"setup": true or false}; {"ended": "", "secret": ...} when an exercise and all
        that it started are gone, or {"ended": why, "secret": ...} if it did not live to its end

The setup cells are the course's own. They run once, in this process, which takes seconds. Then each exercise, an answer
and its check, runs in a fork of it. So a crash, an endless loop or a full memory costs one exercise. Nothing remains of
it for the next one, which may be another student's: this process reads neither answers nor their outputs, and in the
sandbox it is process 1, which no other process there can stop. It keeps the limits.
"""

import contextlib
import ctypes
import json
import os
import resource
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time

import psutil
from traitlets.config import Config

from tools.grading.shell import Publisher, Result, Sender, Shell

PR_SET_DUMPABLE = 4
DIGITS = 12
IDLE_SECONDS = 300
ENDS = {
    "crashed": "the process ended before the cell did ({})",
    "time": "it ran for more than {exercise_seconds} seconds: is there an endless loop?",
    "memory": "it took more than {memory_mb} MB of memory",
    "processes": "it started more than {processes} processes",
}


def watch(pid: int, limits: dict) -> str:
    """Wait for the process of an exercise, and stop it at a limit; why it ended early, else "".

    CPU time counts, so that a busy machine costs nobody points. Four times as long by the clock ends a sleeping cell.
    """
    begun, pause = time.monotonic(), 0.01
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"crashed: {ENDS['crashed'].format(described(code))}"
        seconds, megabytes, processes = usage()
        over = {
            "time": max(seconds, (time.monotonic() - begun) / 4) > limits["exercise_seconds"],
            "memory": megabytes > limits["memory_mb"],
            "processes": processes > limits["processes"],
        }
        for why in over:
            if over[why]:
                kill(pid)
                os.waitpid(pid, 0)
                return f"{why}: {ENDS[why].format(**limits)}"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


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


def run_exercise(shell: Shell, length: int, out: Sender, limits: dict) -> None:
    """In a fork: read an exercise, let go of this program's files, and run it."""
    try:
        cells = json.loads(read(length))
        leave_out(0, 1, 2)
        os.setsid()
        os.chdir(tempfile.mkdtemp())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        set_dumpable(True)
        for limit, most in ((resource.RLIMIT_DATA, limits["memory_mb"] * 10**6), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        shell.run(cells, out, limits["output_characters"])
        os._exit(0)  # not through what an answer may have registered for the end
    finally:
        os._exit(1)


def clear() -> None:
    """Remove all processes and files that an exercise has left behind."""
    if os.getpid() == 1:
        kill(1)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    for folder in {tempfile.gettempdir(), *(["/dev/shm"] if os.getpid() == 1 else [])}:
        for path, folders, _ in os.walk(folder):
            for name in (os.path.join(path, name) for name in folders):
                with contextlib.suppress(OSError):  # not ours: labkit may be shown there
                    os.path.islink(name) or os.chmod(name, 0o700)
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.remove(entry)


def read(length: int) -> bytes:
    """Exactly so many bytes from stdin; fewer only at its end."""
    found = b""
    while len(found) < length and (part := os.read(0, length - len(found))):
        found += part
    return found


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
    """Answer requests until there are no more, or none comes for `IDLE_SECONDS`."""
    request = json.loads(read(int(read(DIGITS))))
    limits, out, control = request["limits"], Sender(os.dup(1)), Sender(2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_dumpable(False)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.xmode = "Plain"  # not the source of checks, and not seconds for a deep recursion
    shell = Shell.instance(config=config, display_pub_class=Publisher, displayhook_class=Result)
    ready = shell.run(request["setup"], out, limits["output_characters"])
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    control({"setup": ready})
    while ready and select.select([0], [], [], IDLE_SECONDS)[0] and (length := read(DIGITS)):
        secret = secrets.token_hex()
        if not (pid := os.fork()):
            run_exercise(shell, int(length), Sender(out.file, secret), limits)
        ended = watch(pid, limits)
        clear()
        control({"ended": ended, "secret": secret})
    os._exit(0)  # at once: to take Python apart costs seconds


if __name__ == "__main__":
    main()
