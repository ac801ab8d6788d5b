"""Where the code of students runs: without network, without the course's sources, classmates and gradebook.

`container`: `podman` or `docker` with the image labkit-grading (`make grading-image`; docker/grading/Dockerfile).
`namespaces`: on Linux, `unshare`: a root folder of its own that holds Python and labkit, and nothing else. Root becomes
a user that exists nowhere else. Others need the right to make user namespaces.
`none`: an ordinary process with limits. It can read all that you can, so it is never chosen unless you ask for it.

In each of them `worker.py` is the program, with a fresh folder for its files.
"""

import atexit
import importlib.util
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

Cells = list[tuple[str, str]]  # key and source
ROOT = Path(__file__).resolve().parents[2]
DIGITS = 12  # of a message's length, as in worker.py
WORKER = ["-P", "-m", "tools.grading.worker"]  # -P: no folder of a submission is searched for modules
IMAGE = "labkit-grading"
KINDS = ("container", "namespaces", "none")
SHOWN = ("labkit", "data", "tools/grading")  # of this repository
SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /etc/ld.so.cache /etc/alternatives /etc/localtime".split()
DEVICES = ["null", "zero", "full", "random", "urandom"]
FILES_MB = 256  # that a submission may write


def environment(seed: int, python_path: str = str(ROOT)) -> dict[str, str]:
    """All variables that the worker gets."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one_thread | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]),
        "PYTHONPATH": python_path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "student",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "",
        "PLOTLY_RENDERER": "plotly_mimetype",
        "NBGRADER_EXECUTION": "autograde",
        "LABKIT_CHECK_SEED": str(seed),
    }


class Sandbox:
    """The worker, started, and a conversation with it; `close` leaves nothing of it behind."""

    def __init__(self, kind: str, setup: Cells, limits: dict[str, int], seed: int):
        """Starts the worker and runs the setup cells, `(key, source)`, which have `limits["setup_seconds"]`.

        Raises:
            RuntimeError: if that fails, with its error.
        """
        self.kind, self.limits = kind, limits
        self.folder = tempfile.TemporaryDirectory(prefix="labkit-grading-")
        make = {"container": container, "namespaces": namespaces, "none": plain}[kind]
        variables = environment(seed)
        command, self.end = make(Path(self.folder.name), variables, limits["memory_mb"], limits["processes"])
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        own = None if kind == "container" else variables  # podman and docker need yours, and get these as options
        self.worker = subprocess.Popen(
            command, bufsize=0, **pipes, env=own, cwd=self.folder.name, start_new_session=True
        )
        atexit.register(self.close)
        os.set_blocking(self.worker.stdout.fileno(), False)
        self.setup, told = self.ask({"setup": setup, "limits": limits}, limits["setup_seconds"])
        if not told.get("setup"):
            self.close()
            errors = [message["output"]["evalue"] for message in self.setup if "evalue" in message.get("output", {})]
            raise RuntimeError(f"the course's setup fails in the sandbox ({kind}): {errors or told['ended']}")

    def run(self, cells: Cells) -> tuple[list[dict], str]:
        """Runs an exercise; messages about its cells, see `worker`, and why it ended early, else ""."""
        messages, told = self.ask(cells, 4 * self.limits["exercise_seconds"] + 60)
        return messages, told["ended"]

    def ask(self, request: object, seconds: float) -> tuple[list[dict], dict]:
        """Sends a request; messages about cells, and the one about processes that ends the answer."""
        body = json.dumps(request).encode()
        with suppress(BrokenPipeError):  # it has ended, as its answer says
            self.worker.stdin.write(f"{len(body):0{DIGITS}d}".encode() + body)
        answer, told, files = bytearray(), b"", [self.worker.stdout, self.worker.stderr]
        deadline = time.monotonic() + seconds
        while not told.endswith(b"}\n"):
            ready = select.select(files, [], [], max(deadline - time.monotonic(), 0))[0]
            if self.worker.stdout in ready and not self.receive(answer):
                files.remove(self.worker.stdout)
            if self.worker.stderr in ready:
                told += (part := self.worker.stderr.read(1 << 16))
            if not ready or (self.worker.stderr in ready and not part):
                self.close()
                why = told.decode(errors="replace").strip()[-2000:] or "it does not answer"
                return [], {"ended": f"crashed: the sandbox ended ({why})"}
        while self.receive(answer):
            pass
        ended = json.loads(told.splitlines()[-1])
        return messages_in(answer, ended.get("secret", "")), ended

    def receive(self, answer: bytearray) -> bool:
        """Adds what has come about cells, up to a limit; whether there was any."""
        part = self.worker.stdout.read(1 << 16)
        if part and len(answer) < 20 * self.limits["output_characters"]:
            answer += part
        return bool(part)

    def close(self) -> None:
        """Ends the worker."""
        atexit.unregister(self.close)
        self.worker.stdin.close()  # it ends by itself, unless it is in the middle of something
        with suppress(subprocess.TimeoutExpired):
            self.worker.wait(timeout=10)
        if self.end and self.worker.poll() is None:
            subprocess.run(self.end, capture_output=True)
        self.worker.kill()
        self.worker.wait()
        self.worker.stdout.close()
        self.worker.stderr.close()
        self.folder.cleanup()


def messages_in(answer: bytes, secret: str) -> list[dict]:
    """The messages among lines, into which an answer may have written its own: those after the secret."""
    found = []
    for line in answer.split(b"\n"):
        with suppress(ValueError):  # cut at the limit
            found += [json.loads(line.removeprefix(secret.encode()))] if line.startswith(secret.encode()) else []
    return found


def plain(folder: Path, variables: dict[str, str], memory_mb: int, processes: int) -> tuple[list[str], list[str]]:
    """An ordinary process."""
    variables["HOME"] = variables["TMPDIR"] = str(folder)
    return [sys.executable, *WORKER], []


def container(folder: Path, variables: dict[str, str], memory_mb: int, processes: int) -> tuple[list[str], list[str]]:
    """`podman run` or `docker run`. The image has the packages; labkit comes from here, so that it is never old."""
    engine, name = engines()[0], folder.name
    variables = {**variables, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": "/course"}
    options = ["--rm", "--interactive", f"--name={name}", "--network=none", "--read-only", "--user=65534:65534"]
    options += ["--cap-drop=ALL", "--security-opt=no-new-privileges", f"--pids-limit={2 * processes}"]
    options += [f"--memory={2 * memory_mb}m", f"--tmpfs=/tmp:rw,size={FILES_MB}m,mode=1777", "--workdir=/tmp"]
    options += [f"--env={key}={value}" for key, value in variables.items()]
    options += [f"--volume={ROOT / name}:/course/{name}:ro" for name in SHOWN]
    return [engine, "run", *options, IMAGE, "python", *WORKER], [engine, "kill", name]


def namespaces(folder: Path, variables: dict[str, str], memory_mb: int, processes: int) -> tuple[list[str], list[str]]:
    """`unshare`, with a script that makes the new root folder in `folder` and gives all rights up."""
    root = os.geteuid() == 0
    user = str(100_000 + os.getpid())  # nobody else is this user
    drop = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    drop += [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if root else []
    most = [f"--nproc={2 * processes}"] if root else []  # elsewhere your own processes would count
    run = ["prlimit", f"--fsize={FILES_MB * 10**6}", *most, *drop, sys.executable, *WORKER]
    script = "\n".join(
        [*new_root(folder), f"exec chroot . /bin/sh -c {shlex.quote('cd /tmp && exec ' + shlex.join(run))}"]
    )
    own_user = [] if root else ["--user", "--map-root-user"]
    apart = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", *own_user]
    return ["unshare", *apart, "/bin/sh", "-c", script], []


def new_root(folder: Path) -> list[str]:
    """The lines of a shell script that put Python and labkit, and nothing else, into a new root folder, read-only."""
    lines = ["set -e", f"mount -t tmpfs -o mode=755 none {shlex.quote(str(folder))}", f"cd {shlex.quote(str(folder))}"]
    lines += ["mkdir -p tmp dev proc etc sys/devices/system/cpu", "mount -t proc proc proc"]
    lines += [f"mount -t tmpfs -o mode=1777,size={FILES_MB}m none tmp"]
    lines += [f"touch dev/{name} && mount --bind /dev/{name} dev/{name}" for name in DEVICES]
    lines += ["mkdir dev/shm && mount -t tmpfs -o mode=1777,size=64m none dev/shm", "ln -s /proc/self/fd dev/fd"]
    pythons = {path for one in (sys.prefix, sys.base_prefix) for path in (one, os.path.realpath(one))}
    shown = [
        *SYSTEM,
        "/sys/devices/system/cpu",
        *sorted(pythons),
        *(str(ROOT / name) for name in SHOWN),
        *packages_elsewhere(),
    ]
    for path in dict.fromkeys(path for path in shown if os.path.exists(path)):
        here = shlex.quote(path.lstrip("/"))
        if os.path.islink(path):
            lines.append(f"mkdir -p $(dirname {here})")
            lines.append(f"[ -e {here} ] || ln -s {shlex.quote(os.readlink(path))} {here}")
        elif not any(Path(path).is_relative_to(shown) for shown in ("/usr", "/lib", "/lib64") if shown != path):
            make = f"mkdir -p {here}" if os.path.isdir(path) else f"mkdir -p $(dirname {here}) && touch {here}"
            lines.append(f"{make} && mount --bind {shlex.quote(path)} {here}")
            lines.append(f"mount -o remount,bind,ro,nosuid,nodev {here}")
    return lines


def packages_elsewhere() -> list[str]:
    """The folders of packages that lie outside Python's own, as PYTHONPATH or an editable installation have them."""
    found = (importlib.util.find_spec(name) for name in ("torch", "IPython", "plotly", "pandas"))
    folders = {str(Path(one.origin).parents[1]) for one in found if one and one.origin}
    return sorted(folder for folder in folders if not Path(folder).is_relative_to(sys.prefix))


@cache
def engines() -> list[str]:
    """Those of podman and docker that run here and have the image."""
    asked = ([engine, "image", "inspect", IMAGE] for engine in ("podman", "docker") if shutil.which(engine))
    return [command[0] for command in asked if subprocess.run(command, capture_output=True).returncode == 0]


@cache
def works(kind: str) -> str:
    """The reason why a kind of sandbox does not work here, "" if it does: tried with an empty submission."""
    if kind == "container" and not engines():
        return f"neither podman nor docker has the image {IMAGE}: make grading-image"
    if kind == "namespaces" and not (shutil.which("unshare") and shutil.which("setpriv")):
        return "unshare and setpriv are not here: they belong to util-linux, on Linux"
    limits = {"setup_seconds": 60, "memory_mb": 1000, "processes": 50, "output_characters": 1000}
    try:
        Sandbox(kind, [], limits, seed=0).close()
    except RuntimeError as error:
        return str(error)
    return ""


@cache
def choose(asked: str = "") -> str:
    """The kind that was asked for, else the first that works and isolates.

    Raises:
        RuntimeError: with the reasons, if it does not work.
    """
    reasons = {}
    for kind in [asked] if asked else [kind for kind in KINDS if kind != "none"]:
        reasons[kind] = works(kind)
        if not reasons[kind]:
            return kind
    told = "\n".join(f"  {kind}: {reason}" for kind, reason in reasons.items())
    raise RuntimeError(
        f"no sandbox works here for the code of students:\n{told}\nIn a virtual machine or as a user that has nothing "
        "to lose you can do without: ISOLATION=none. Students' code can then read all that you can."
    )
