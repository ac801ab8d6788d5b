"""Processes of their own for tests, without the seconds that PyTorch takes to be imported.

Each is forked from a server, which is a new Python process that has imported it and labkit, but computed nothing.
"""

import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

import labkit as package

CONTEXT = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
CONTEXT.set_forkserver_preload(["labkit.cli", "labkit.training.fit", "torch._dynamo"])


def start(
    messages: Path, function: Callable, *arguments: object, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """Runs ``function(*arguments)`` with more variables in its environment; what it says is added to a file."""
    process = CONTEXT.Process(target=_run, args=(messages, environment or {}, function, arguments))
    process.start()
    return process


def labkit(messages: Path, *arguments: str) -> BaseProcess:
    """Runs ``labkit ARGUMENTS``, in a process group that is named after the process, so that it can be killed whole."""
    return start(messages, _command, *arguments)


def _run(messages: Path, environment: Mapping[str, str], function: Callable, arguments: tuple) -> None:
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup, or in the background, both are ignored,
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and a run that is sent one would continue for ever
    torch.set_num_threads(1)
    with open(messages, "ab") as file:
        for output in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), output.fileno())
    function(*arguments)


def _command(*arguments: str) -> None:
    from labkit.cli import main

    os.setsid()
    package.fruit = functools.partial(package.fruit, n=8)  # a thousand are painted otherwise
    sys.argv = ["labkit", *arguments]
    main()
