"""One run at a time trains into a folder, and a lock that nobody holds stops nobody."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from labkit import locks
from labkit.errors import LabkitError
from labkit.locks import locked

HOLD = (
    "import sys, pathlib; from labkit.locks import locked\n"
    "with locked(pathlib.Path(sys.argv[1])):\n    print('locked', flush=True); sys.stdin.read()"
)


def test_a_second_run_is_refused_and_a_killed_one_leaves_no_lock(train, tmp_path):
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], **pipes) as holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(LabkitError, match="another run trains into this folder"):
            train(1, tmp_path)
        holder.kill()  # without warning: it cannot tidy up
    assert not (tmp_path / "checkpoint.pt").exists() and (tmp_path / ".lock").exists()
    assert train(1, tmp_path).done == 1


def test_children_of_a_killed_run_do_not_hold_its_lock(tmp_path):
    """Such as processes that prepare batches: they end seconds after it."""
    program = HOLD.replace("print(", "import os, time\n    if os.fork(): time.sleep(60)\n    print(os.getpid(), ")
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as run:
        child = int(run.stdout.readline().split()[0])
        run.kill()
        run.wait()
        try:
            with locked(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_other_run(tmp_path, monkeypatch, number):
    def refuse(lock):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.FileLock, "acquire", refuse)
    with pytest.warns(UserWarning, match="no lock is possible there.*no second run"), locked(tmp_path):
        pass
