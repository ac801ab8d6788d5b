"""Where the code of students runs: without network, without the course's sources, classmates and gradebook.

`container`: `podman` or `docker` with the image labkit-grading (`make grading-image`; docker/grading/Dockerfile).
`namespaces`: on Linux, `unshare`: a root folder of its own that holds only Python and the packages of the course.
Any user may make it, unless the system forbids user namespaces.
`none`: an ordinary process with limits. It can read all that you can, so it is never chosen unless you ask for it.

In each of them `worker.py` is the program, with a fresh folder for its files and the `packages` without right answers.
"""

import atexit
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from labcourse.check import originality
from labcourse.check.answers import AnswerStopped
from tools.grading import packages
from tools.grading.packages import ROOT

WORKER = ["-P", "-m", "tools.grading.worker"]  # -P: no folder of a submission is searched for modules
IMAGE = "labkit-grading"
KINDS = ("container", "namespaces", "none")
SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /etc/ld.so.cache /etc/alternatives /etc/localtime /sys/devices/system/cpu"
SETUP_SECONDS = 300  # by the clock, for starting Python and the setup cells
NEW_ROOT = """
set -e
course=$3 data=$4
mount -t tmpfs -o mode=755 none "$1" && cd "$1"
python=$2 && shift 4
mkdir -p tmp dev/shm proc course
mount --bind "$course" course && mount --bind "$data" course/data
mount -o remount,bind,ro,nosuid,nodev course/data && mount -o remount,bind,ro,nosuid,nodev course
mount -t tmpfs -o mode=1777,size=256m none tmp
mount -t tmpfs -o mode=1777,size=64m none dev/shm
mount -t proc -o ro proc proc
ln -s /proc/self/fd dev/fd
for name in null zero full random urandom; do
    touch dev/$name && mount --bind /dev/$name dev/$name && mount -o remount,bind,ro dev/$name
done
for path; do
    if [ -e ".$path" ] || [ ! -e "$path" ]; then continue; fi
    mkdir -p ".$(dirname "$path")"
    if [ -L "$path" ]; then cp -P "$path" ".$path"; continue; fi
    if [ -d "$path" ]; then mkdir ".$path"; else touch ".$path"; fi
    mount --bind "$path" ".$path"
    mount -o remount,bind,ro,nosuid,nodev ".$path"
done
mount -o remount,bind,ro .
exec chroot . setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$python" """ + " ".join(WORKER)


def environment(course: Path) -> dict[str, str]:
    """All variables that the worker gets, which finds the packages in `course`."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one_thread | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]),
        "PYTHONPATH": str(course),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "student",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "",
        "PLOTLY_RENDERER": "plotly_mimetype",
        "NBGRADER_EXECUTION": "autograde",
    }


class Sandbox:
    """The worker, started, and a conversation with it; `close` leaves nothing of it behind."""

    def __init__(self, kind: str, setup: list[str], limits: dict[str, int], notebook: str = ""):
        """Starts the worker and runs the setup cells.

        Args:
            notebook: its name. In the packages that the worker gets labkit's own answers to its exercises are missing.

        Raises:
            RuntimeError: if that fails, with its error.
        """
        self.seconds = 4 * limits["exercise_seconds"] + 60
        self.folder = tempfile.TemporaryDirectory(prefix="labkit-grading-")
        self.course = tempfile.TemporaryDirectory(prefix="labkit-course-")
        course = Path(self.course.name)
        packages.copy_packages(course, originality.library_code(notebook.partition("_")[0]) if notebook else {})
        variables = environment(course if kind == "none" else Path("/course"))
        if kind == "none":
            variables["HOME"] = variables["TMPDIR"] = self.folder.name
            (course / "data").rmdir()
            (course / "data").symlink_to(ROOT / "data")
        command, self.end = MAKE[kind](self.folder.name, course, variables, limits["memory_mb"])
        self.errors = tempfile.TemporaryFile()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        own = None if kind == "container" else variables  # podman and docker need yours, and get these as options
        self.worker = subprocess.Popen(command, **pipes, env=own, cwd=self.folder.name, start_new_session=True)
        atexit.register(self.close)
        cells, ended = self.send({"setup": setup, "limits": limits}, SETUP_SECONDS)
        if failed := ended or [cell["error"]["evalue"] for cell in cells if cell["error"]]:
            self.close()
            raise RuntimeError(f"the course's setup fails in the sandbox ({kind}): {failed}")

    def run(self, cells: list[str]) -> tuple[list[dict], str]:
        """Begins an exercise with its cells; their results, see `worker`, and why it ended early, else ""."""
        return self.send({"cells": cells}, self.seconds)

    def ask(self, request: str) -> str:
        """The reply to a check's request, see `labcourse.calls.reply`. Raises `AnswerStopped` if there is none."""
        told, ended = self.send({"ask": request}, self.seconds)
        if ended:
            raise AnswerStopped(ended)
        return told

    def end_exercise(self) -> None:
        """Ends the processes of the exercise."""
        if self.worker.poll() is None:
            self.send({"end": True}, self.seconds)

    def send(self, request: object, seconds: float) -> tuple[Any, str]:
        """Sends a request to the worker; what it tells, and why there is no more."""
        with suppress(BrokenPipeError):  # it has ended, as its answer says
            self.worker.stdin.write(json.dumps(request).encode() + b"\n")
            self.worker.stdin.flush()
        if select.select([self.worker.stdout], [], [], seconds)[0] and (line := self.worker.stdout.readline()):
            told = json.loads(line)
            return told["told"], told["ended"]
        return [], f"crashed: the sandbox ended ({self.close() or 'it does not answer'})"

    def close(self) -> str:
        """Ends the worker; the end of what it wrote to stderr."""
        if self.errors.closed:
            return ""
        atexit.unregister(self.close)
        with suppress(BrokenPipeError):
            self.worker.stdin.close()  # it ends by itself, unless it is in the middle of something
        with suppress(subprocess.TimeoutExpired):
            self.worker.wait(timeout=10)
        if self.end and self.worker.poll() is None:
            subprocess.run(self.end, capture_output=True)
        self.worker.kill()
        self.worker.wait()
        self.worker.stdout.close()
        self.folder.cleanup()
        self.course.cleanup()
        with self.errors:
            self.errors.seek(0)
            return self.errors.read().decode(errors="replace").strip()[-2000:]


def container(folder: str, course: Path, variables: dict[str, str], memory_mb: int) -> tuple[list[str], list[str]]:
    """`podman run` or `docker run`. The image has what they need; the course's own packages come from here."""
    there = [engine for engine in ("podman", "docker") if shutil.which(engine)]
    asked = ((one, subprocess.run([one, "image", "inspect", IMAGE], capture_output=True)) for one in there)
    if not (engine := next((one for one, answer in asked if answer.returncode == 0), None)):
        raise RuntimeError(f"neither podman nor docker has the image {IMAGE}: make grading-image")
    name = Path(folder).name
    variables = variables | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    options = ["--rm", "--interactive", f"--name={name}", "--network=none", "--read-only", "--user=65534:65534"]
    options += ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=200"]
    options += [f"--memory={2 * memory_mb}m", "--tmpfs=/tmp:rw,size=256m,mode=1777", "--workdir=/tmp"]
    options += [f"--env={key}={value}" for key, value in variables.items()]
    options += [f"--volume={course}:/course:ro", f"--volume={ROOT / 'data'}:/course/data:ro"]
    return [engine, "run", *options, IMAGE, "python", *WORKER], [engine, "kill", name]


def namespaces(folder: str, course: Path, variables: dict[str, str], memory_mb: int) -> tuple[list[str], list[str]]:
    """`unshare`, with a script that makes the new root folder, read-only, and gives all rights up."""
    pythons = [path for one in (sys.prefix, sys.base_prefix) for path in (one, os.path.realpath(one))]
    places = [folder, sys.executable, str(course), str(ROOT / "data"), *SYSTEM.split(), *pythons]
    apart = "--user --map-root-user --mount --net --pid --ipc --uts --fork --kill-child".split()
    return ["unshare", *apart, "/bin/sh", "-c", NEW_ROOT, "sh", *places], []


def process(folder: str, course: Path, variables: dict[str, str], memory_mb: int) -> tuple[list[str], list[str]]:
    """A process like any other."""
    return [sys.executable, *WORKER], []


MAKE = {"container": container, "namespaces": namespaces, "none": process}


@cache
def works(kind: str) -> str:
    """The reason why a kind of sandbox does not work here, "" if it does: tried with an empty submission."""
    try:
        Sandbox(kind, [], {"exercise_seconds": 1, "memory_mb": 1000}).close()
    except (RuntimeError, OSError) as error:  # unshare is not here, for instance
        return str(error)
    return ""


def choose(asked: str = "") -> str:
    """The kind that was asked for, else the first that works and isolates.

    Raises:
        RuntimeError: with the reasons, if it does not work.
    """
    kinds = [asked] if asked else ["container", "namespaces"]
    for kind in kinds:
        if not works(kind):
            return kind
    told = "\n".join(f"  {kind}: {works(kind)}" for kind in kinds)
    raise RuntimeError(
        f"no sandbox works here for the code of students:\n{told}\nIn a virtual machine or as a user that has nothing "
        "to lose you can do without: ISOLATION=none. Students' code can then read all that you can."
    )
