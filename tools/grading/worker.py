"""The program inside the sandbox: runs the answers of exercises, each in a new process.

It answers a line of JSON on stdin with a line of JSON on stdout:

    {"setup": [source, ...], "limits": {"exercise_seconds": 30, "memory_mb": 4000}}    once, first
    {"cells": [source, ...]}                              an exercise: its cells, without the check
    {"ask": "..."}                                        a request of its check, see `labcourse.calls.reply`
    {"end": true}                                         no more of this exercise
    {"ended": "", "told": [{"text": "...", "error": null, "goes_on": false, "absent": []}, ...]}

The last is what comes back. `told` has the output and the error of each cell that ran to its end, whether it went on
after an error, and the modules that it lacks; or it is the reply to the request. `ended` says why the exercise was
stopped early, and is empty if it was not.

The setup cells are the course's own. They run once, in this process, which takes seconds. Then each exercise runs in a
fork of it. So a crash, an endless loop or a full memory costs one exercise. Nothing remains of it for the next one,
which may be another student's: this process does not run answers, and in the sandbox it is process 1, which no other
process there can stop. It keeps the limits. What is right is not known here: nothing that comes back is believed.
"""

import ast
import contextlib
import ctypes
import importlib
import io
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from unittest.mock import MagicMock

import psutil
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from labcourse.calls import reply

PR_SET_DUMPABLE = 4
IDLE_SECONDS = 300
MAX_CHARACTERS = 200_000  # that a cell may print; the middle of more is cut
LIBRARYS_OWN = "the library's own"  # in the error of a function that is taken out, see `packages`
MAX_BYTES = 20_000_000  # of an exercise's answer
CUT = "\n... a part of the output was cut\n"


class Printed(io.TextIOBase):
    """The stdout and stderr of a cell. Of very much, it keeps the beginning and the end."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        if len(self.text) > MAX_CHARACTERS:
            self.text = self.text[: MAX_CHARACTERS // 2] + CUT + self.text[-MAX_CHARACTERS // 4 :]
        return len(text)


class Shell(InteractiveShell):
    """IPython as Jupyter's kernel has it, but what a cell displays is printed as text, and magics do nothing."""

    error: dict | None = None
    goes_on = False  # with the next statement when one fails: an earlier one called what is taken out of the packages

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        self.error = self.error or {"ename": etype.__name__, "evalue": str(evalue)[:10_000], "traceback": stb}

    def run_line_magic(self, *_: object, **__: object) -> None: ...

    def run_cell_magic(self, *_: object, **__: object) -> None: ...

    def system(self, _: str) -> None: ...

    def getoutput(self, *_: object, **__: object) -> list[str]:
        return []

    def run(self, source: str) -> dict:
        """Run a cell; what it printed, its first error or None, whether it went on then, and the modules that it lacks.

        A module that is not installed here, as matplotlib where Colab has it, gets a stand-in, and the cell runs again.
        Where a line beside the answer calls what is taken out of the packages here, the cell goes on with the next one,
        and so do later cells, which may need what the line would have given.
        """
        self.error, printed, absent = None, Printed(), []
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            while source:
                earlier = self.error
                wrong = self.run_cell(source, store_history=True).error_in_exec
                if isinstance(wrong, ModuleNotFoundError) and wrong.name not in (None, *sys.modules):
                    sys.modules[wrong.name] = MagicMock()
                    absent.append(wrong.name.partition(".")[0])
                    self.error = earlier
                    continue
                self.goes_on = self.goes_on or LIBRARYS_OWN in str(wrong)
                source = self.after(wrong, source) if wrong and self.goes_on else ""
        return {"text": printed.text, "error": self.error, "goes_on": self.goes_on, "absent": absent}

    def after(self, wrong: BaseException, source: str) -> str:
        """What follows in a cell the statement that raised an error, with the same numbers of lines."""
        failed = [line for frame, line in traceback.walk_tb(wrong.__traceback__) if frame.f_locals is self.user_ns]
        ended = next((one for one in ast.parse(source).body if failed and one.end_lineno >= failed[0]), None)
        if not ended:
            return ""
        lines = source.split("\n")
        lines[: ended.end_lineno] = ["#"] * (ended.end_lineno - 1) + [
            lines[ended.end_lineno - 1].encode()[ended.end_col_offset :].decode().lstrip("; ")
        ]
        return "\n".join(lines)


def run_exercise(shell: Shell, requests: socket.socket, memory_mb: int) -> None:
    """In a fork: let go of this program's files, run the cells, even if an earlier one fails, and reply to requests."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1, 2):
            os.dup2(nothing, own)
        os.setsid()
        os.chdir(tempfile.mkdtemp(dir=own_folder()))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        set_dumpable(True)
        for limit, most in ((resource.RLIMIT_DATA, memory_mb * 10**6), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        for line in requests.makefile("rb"):
            request = json.loads(line)
            if "cells" in request:
                for source in request["cells"]:
                    requests.sendall(f"{json.dumps(shell.run(source))}\n".encode())
            else:
                requests.sendall(f"{reply(request['ask'], shell.user_ns)}\n".encode())
    finally:
        os._exit(1)  # not through what an answer may have registered for the end


class ExerciseProcess:
    """The process of an exercise. Its CPU time counts, so that a busy machine costs nobody points."""

    def __init__(self, shell: Shell, limits: dict):
        self.limits, self.ended = limits, ""
        self.end, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self.end.close()
            run_exercise(shell, theirs, limits["memory_mb"])
        theirs.close()

    def ask(self, request: dict, lines: int) -> list[str]:
        """Send a request, and wait for so many lines; those that came. `ended` says why there are no more.

        Four times the limit by the clock ends a sleeping answer.
        """
        begun, text = time.monotonic(), b""
        self.end.settimeout(10)
        try:
            self.end.sendall(f"{json.dumps(request)}\n".encode())
        except OSError:
            self.ended = self.ended or "crashed: the process ended, or does not listen"
        self.end.setblocking(False)
        while not self.ended and text.count(b"\n") < lines:
            part = b""
            if select.select([self.end], [], [], 0.1)[0]:
                with contextlib.suppress(ConnectionResetError):  # it ended without reading the request
                    part = self.end.recv(1 << 20)
            if not part:
                time.sleep(0.01)  # it may have closed its end
            text += part
            if len(text) > MAX_BYTES:
                self.ended = "crashed: it wrote too much"
            elif text.count(b"\n") < lines:
                self.ended = self.why_stopped(time.monotonic() - begun)
        return text.decode(errors="replace").split("\n")[:-1][:lines]

    def why_stopped(self, seconds: float) -> str:
        """Why the process has ended, or has to be, after so many seconds of a request; "" if it may go on."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
            return f"crashed: the process ended before the cell did ({how})"
        cpu_seconds, megabytes = usage()
        if max(cpu_seconds, seconds / 4) > self.limits["exercise_seconds"]:
            return f"time: it ran for more than {self.limits['exercise_seconds']} seconds: is there an endless loop?"
        if megabytes > self.limits["memory_mb"]:
            return f"memory: it took more than {self.limits['memory_mb']} MB of memory"
        return ""

    def close(self) -> None:
        """End the process and all that it has started or left behind."""
        self.end.close()
        clear()


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


def own_folder() -> str:
    """The folder for an answer's files, which the sandbox names. Everything in it is removed after each exercise.

    Never `tempfile.gettempdir()`: where TMPDIR cannot be written, on a full disk for instance, that is the system's.
    """
    return os.environ["TMPDIR"]


def clear() -> None:
    """Remove all processes and files that an exercise has left behind."""
    kill_children()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    folders = [own_folder(), *(["/dev/shm"] if os.getpid() == 1 else [])]
    for command in (["chmod", "-R", "u+rwX", *folders], ["find", *folders, "-mindepth", "1", "-delete"]):
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of the same user may open this process's memory and files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(dumpable))


def tell(ended: str, told: list[dict] | str) -> None:
    """Answer a request."""
    print(json.dumps({"ended": ended, "told": told}), flush=True)


def results_in(lines: list[str]) -> list[dict]:
    """The results of cells, up to a line that is none: an answer can write into its socket, too."""
    found: list[dict] = []
    with contextlib.suppress(ValueError, TypeError, KeyError):
        for line in lines:
            result, error = json.loads(line), None
            if told := result["error"]:
                text, trace = str(told["evalue"]), [str(one) for one in told["traceback"]]
                error = {"ename": str(told["ename"]), "evalue": text, "traceback": trace}
            found.append({"text": str(result["text"]), "error": error, "goes_on": bool(result["goes_on"])})
            found[-1]["absent"] = [str(name) for name in result["absent"]]
    return found


def main() -> None:
    """Answer requests until there are no more, or none comes for `IDLE_SECONDS`."""
    request = json.loads(sys.stdin.buffer.readline())
    limits = request["limits"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_dumpable(False)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.xmode = "Plain"  # not seconds for a deep recursion
    shell = Shell.instance(config=config)
    importlib.import_module("torch._dynamo")  # an optimiser's first step does, which takes seconds, in each fork
    tell("", [shell.run(source) for source in request["setup"]])
    exercise: ExerciseProcess | None = None
    while select.select([0], [], [], IDLE_SECONDS)[0] and (line := sys.stdin.buffer.readline()):
        request = json.loads(line)
        if "ask" in request and exercise:
            told = exercise.ask(request, lines=1)
            tell(exercise.ended, told[0] if told else "")
            continue
        if exercise:
            exercise.close()
            exercise = None
        if "cells" in request:
            exercise = ExerciseProcess(shell, limits)
            results = results_in(exercise.ask(request, lines=len(request["cells"])))
            tell(exercise.ended, results)
        else:
            tell("", [])
    os._exit(0)  # at once: to take Python apart costs seconds


if __name__ == "__main__":
    main()
