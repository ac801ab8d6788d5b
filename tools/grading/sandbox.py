"""Where the code of students runs: without network, without the course's sources, classmates and gradebook.

`container`: `podman` or `docker` with the image labkit-grading (`make grading-image`; docker/grading/Dockerfile).
`namespaces`: on Linux, `unshare`: a root folder of its own that holds Python and labkit, and nothing else. Root becomes
a user that exists nowhere else. Others need the right to make user namespaces.
`none`: an ordinary process with limits. It can read all that you can, so it is never chosen unless you ask for it.

In each of them `worker.py` is the program, with a fresh folder for its files. `start` gives the command for it.
"""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKER = ["-P", "-m", "tools.grading.worker"]  # -P: no folder of a submission is searched for modules
IMAGE = "labkit-grading"
KINDS = ("container", "namespaces", "none")
SHOWN = ("labkit", "data", "tools/grading")  # of this repository
SYSTEM = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
]
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
        "USER": "student",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "",
        "PLOTLY_RENDERER": "plotly_mimetype",
        "NBGRADER_EXECUTION": "autograde",
        "LABKIT_CHECK_SEED": str(seed),
    }


@contextmanager
def start(kind: str, seed: int, memory_mb: int, processes: int) -> Iterator[subprocess.Popen]:
    """The worker, started, with pipes; at the end nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="labkit-grading-") as folder:
        make = {"container": container, "namespaces": namespaces, "none": plain}[kind]
        command, end = make(Path(folder), environment(seed), memory_mb, processes)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        variables = environment(seed) if kind != "container" else None  # podman and docker need yours
        worker = subprocess.Popen(command, **pipes, env=variables, cwd=folder, start_new_session=True)
        try:
            yield worker
        finally:
            if end and worker.poll() != 0:
                subprocess.run(end, capture_output=True)
            worker.kill()
            worker.communicate()


def plain(folder: Path, variables: dict[str, str], memory_mb: int, processes: int) -> tuple[list[str], list[str]]:
    """An ordinary process."""
    variables["HOME"] = str(folder)
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
    limits = {"whole_seconds": 60, "output_characters": 1000}
    request = json.dumps({"setup": [], "exercises": [], "limits": limits}) + "\n"
    with start(kind, seed=0, memory_mb=1000, processes=50) as worker:
        answer, errors = worker.communicate(request.encode(), timeout=90)
    return "" if b'"setup": true' in answer else errors.decode(errors="replace").strip() or "it ends without a word"


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
