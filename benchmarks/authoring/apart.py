"""Functions run by processes of their own, so that a crash, a hang or a failing GPU costs nothing but what they do."""

import importlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any
from unittest.mock import patch

SPAWN = multiprocessing.get_context("spawn")  # nothing of CUDA survives a fork
START_S = 120  # in which a process has imported all that it needs
IMPORTED_LATE = "torch._dynamo"  # by the first optimiser, which takes seconds
READY, DONE = "ready", "done"
Result = tuple[dict | None, str]  # a row as far as it is known, and what it says in words; of a failure None and why


def start(function: Callable[..., None], *arguments: Any, interpret: bool = False) -> BaseProcess:
    """A new process that runs ``function(*arguments)``. It ends with this one, even if this one is killed.

    Args:
        interpret: whether Triton's kernels are interpreted there. Triton asks for it when it is imported.
    """
    process = SPAWN.Process(target=_run, args=(function, *arguments), daemon=True)
    with patch.dict(os.environ, TRITON_INTERPRET=str(int(interpret))):
        process.start()
    return process


def _run(function: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=_follow_parent, daemon=True).start()
    function(*arguments)


def _follow_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


class Apart:
    """A function each call of which is run by a new process. That of the next call starts early, so that none waits.

    Args:
        function: yields its results, again and again as it learns more.
        interpret: as for `start`.
    """

    def __init__(self, function: Callable[..., Iterable[Result]], interpret: bool = False):
        self.function, self.interpret = function, interpret
        self.waiting: list[tuple[BaseProcess, Connection]] = []

    def __call__(self, *arguments: Any, seconds: float) -> Iterator[Result]:
        """What ``function(*arguments)`` yields: each result comes as soon as there is one.

        If the process ends early, or has to be ended because it takes longer than `seconds`, the last result says so.
        """
        while len(self.waiting) < 2:
            mine, its = SPAWN.Pipe()
            self.waiting.append((start(_serve, its, self.function, interpret=self.interpret), mine))
            its.close()
        process, pipe = self.waiting.pop(0)
        until = time.monotonic() + START_S
        try:
            pipe.send(arguments)
            while pipe.poll(max(0.0, until - time.monotonic())):
                said = pipe.recv()
                if said == READY:
                    until = time.monotonic() + seconds
                elif said == DONE:
                    process.join(10)
                    return
                else:
                    yield said
            yield None, f"ended after {seconds:.0f} s, its limit"
        except (EOFError, OSError):
            process.join(10)
            yield None, f"its process ended early, with exit code {process.exitcode}"
        finally:
            end(process)

    def close(self) -> None:
        """Ends the process that waits."""
        while self.waiting:
            end(self.waiting.pop()[0])


def end(process: BaseProcess) -> None:
    """Kills a process, and waits for its end, but not for long: the driver of a GPU may hold it."""
    process.kill()
    process.join(10)


def _serve(pipe: Connection, function: Callable[..., Iterable[Result]]) -> None:
    importlib.import_module(IMPORTED_LATE)
    pipe.send(READY)
    for result in function(*pipe.recv()):
        pipe.send(result)
    pipe.send(DONE)
