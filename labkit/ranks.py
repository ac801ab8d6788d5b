"""The processes of one training run, its ranks: how they find each other, agree, and end together.

``torchrun`` starts the processes and tells each its number. Data goes between them through a process group of
`torch.distributed`: gloo for the host's memory, NCCL for the GPUs'. A process without a group is the only rank.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import typer
from torch.utils._pytree import tree_map_only

from labkit.errors import LabkitError
from labkit.processes import end_with_parent
from labtrace.errors import say

TIMEOUT = timedelta(minutes=5)  # a rank waits this long for another before it gives up

# In errors that mean that another rank is gone: gloo has no class of its own for them.
GLOO = "gloo|pair closure|Connection (closed|reset)|Broken pipe|[Tt]imed out"

_store: Any = None  # where the ranks meet; it outlives a rank that dies


def number() -> int:
    """The rank of this process, from 0 on."""
    return dist.get_rank() if _grouped() else 0


def count() -> int:
    """The number of ranks, 1 for a process by itself."""
    return dist.get_world_size() if _grouped() else 1


def local_batch_size(batch_size: int) -> int:
    """The number of pictures in this rank's part of a batch.

    Raises:
        LabkitError: the ranks cannot share it evenly.
    """
    n = count()
    if batch_size % n:
        raise LabkitError(f"batch_size={batch_size} cannot be shared evenly by {n} ranks: choose a multiple of {n}.")
    return batch_size // n


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()


def started_by_torchrun() -> bool:
    """True if torchrun started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()


@contextmanager
def process_group() -> Iterator[None]:
    """Inside, this process is one of the ranks that torchrun started. Without torchrun nothing changes.

    On a machine with GPUs "cuda" then means this rank's GPU. The ranks end together, within `TIMEOUT` after one of them
    is lost. If this rank fails, or loses another one, the reason is printed and the process ends: no error comes out of
    the block, nothing after it runs, functions of `atexit` neither, and the group is not destroyed. The exit status is
    the one that Python gives: 1 for an error.

    Over gloo, in the host's memory, this is tested. NCCL, between GPUs, never was, for want of a second GPU. By its
    source, a rank that waits there longer than `TIMEOUT` is ended by NCCL's watchdog, with SIGABRT (for torchrun, exit
    code -6) and without an error in Python; and `destroy_process_group` waits for the exchanges under way, which no
    rank joins after one of them has failed.

    Raises:
        LabkitError: there are more ranks on this machine than GPUs.
    """
    global _store
    if not started_by_torchrun():
        yield
        return
    end_with_parent(signal.SIGTERM)  # torchrun cannot end its ranks if it is itself killed
    backend, local = "gloo", int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        if local >= torch.cuda.device_count():
            raise LabkitError(
                f"{os.environ.get('LOCAL_WORLD_SIZE')} processes for {torch.cuda.device_count()} GPUs: start as many "
                "as there are GPUs, or hide them: CUDA_VISIBLE_DEVICES= torchrun ..."
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
    # torchrun keeps its own store when it starts the ranks again, and in it the addresses of those that are gone. A
    # store that is new each time needs no name: nodes that joined later have counted fewer restarts (pytorch#135712).
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") if kept else "any"
    _store = dist.PrefixStore(f"attempt {attempt}", store)
    dist.init_process_group(backend, store=_store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield
    except BaseException as error:
        if status := _status(error):
            _leave(error, status)
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _status(error: BaseException) -> int:
    """The exit status of a program that this error ends."""
    if isinstance(error, SystemExit | typer.Exit):
        code = error.code if isinstance(error, SystemExit) else error.exit_code
        return code if isinstance(code, int) else int(code is not None)
    return getattr(error, "status", 130) if isinstance(error, KeyboardInterrupt) else 1


def _leave(error: BaseException, status: int) -> None:
    """Prints an error as Python does, and ends the process without what comes last there: NCCL may wait in it."""
    if text := lost(error):
        error.add_note(text)
    if not isinstance(error, SystemExit | typer.Exit):
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error, SystemExit) and not isinstance(error.code, int):
        print(error.code, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


def lost(error: BaseException) -> str | None:
    """The text for an error that means that another rank is gone, or None."""
    gone = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and re.search(GLOO, str(error)))
    text = (
        f"rank {number()} of {count()}: another rank ended, or did not answer for {TIMEOUT.total_seconds():g} seconds "
        "(see above if it said why). Run the same again, or use torchrun --max-restarts=3, to continue."
    )
    return text if gone and count() > 1 else None


def start(processes: int, arguments: list[str]) -> int:
    """Runs labkit's command line with these arguments in several processes on this machine. Gives its exit status.

    The same as ``torchrun --standalone --nproc-per-node=<processes> -m labkit <arguments>``, with as many threads for
    each as there are cores for it.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    if sys.platform == "win32":
        os.environ.setdefault("USE_LIBUV", "0")  # PyTorch is built without it there
    options = ["--standalone", f"--nproc-per-node={processes}"]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        options.append("--signals-to-handle=SIGTERM,SIGINT")  # under nohup torchrun would end at SIGHUP all the same
    try:
        main([*options, "-m", "labkit", *arguments])
    except ChildFailedError as failed:
        _, first = failed.get_first_failure()
        return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
    except SignalException as stopped:
        return 128 + stopped.sigval
    return 0


def print_once(message: str, program: str = "labkit") -> None:
    """Prints an error, unless another rank has printed one already: they end together, for one reason."""
    with suppress(RuntimeError):  # torchrun itself is gone
        if _store is not None and _store.add("said", 1) > 1:
            return
    say(message, program)


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, in their order, with tensors in dicts and lists on the CPU. Every rank has to ask."""
    if count() == 1:
        return [value]
    values: list[Any] = [None] * count()
    dist.all_gather_object(values, tree_map_only(torch.Tensor, torch.Tensor.cpu, value))
    return values


def all_equal(settings: dict[str, Any]) -> None:
    """Raises `LabkitError` on every rank if one has other settings than rank 0, and names those that differ."""
    at_0, *others = gathered(settings)
    for rank, theirs in enumerate(others, start=1):
        if differing := [name for name in theirs if theirs[name] != at_0.get(name)]:
            text = "; ".join(f"{name} is {theirs[name]!r}, on rank 0 {at_0.get(name)!r}" for name in differing)
            raise LabkitError(f"rank {rank}: {text}. All ranks need the same command, pictures and checkpoint.")


def first(text: str | None) -> str | None:
    """The text of the first rank that has one. Every rank has to ask."""
    return next((theirs for theirs in gathered(text) if theirs is not None), None)


def largest(values: list[float]) -> list[float]:
    """The largest of each number over the ranks: for times, since a step takes as long as its slowest rank."""
    return [max(of_ranks) for of_ranks in zip(*gathered(values), strict=True)]


def agreed(*wishes: int) -> tuple[int, ...]:
    """For each wish, a number, 0 for none, the largest of any rank: so all save or stop after the same step."""
    if count() == 1:
        return wishes
    flags = torch.tensor(wishes, dtype=torch.int32)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return tuple(flags.tolist())
