"""Any training script recorded as it is: ``labtrace watch train.py --its own --options``.

PyTorch's hooks tell when an optimiser has stepped, so no line of the script changes. This module runs in the script's
process, and is the only one of labtrace that uses PyTorch: the one that the script has imported.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from labtrace.errors import LabError, say
from labtrace.files import atomic_write, check_writable
from labtrace.lazy import after_import
from labtrace.stamp import cores, stamp, waited_for_core

LONGEST_ABSENCE = 20  # steps of another optimiser, after which the first is taken for one that the script has left
MOST_MEMORY = 1 << 30  # bytes that the process may grow by while it is recorded
MEASURED = ("cores_busy", "thread_worked", "thread_waited")  # of the stamp, over the time of the recorded steps
LONGEST_START = 1.0  # seconds, of a process that only starts: to import PyTorch takes longer
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss
PYTHON = [sys.executable, "-P", "-m"]  # -P: no file in the script's folder takes the place of a module


def watch(
    script: list[str], *, steps: int = 10, warmup: int = 5, calls: str = "", stop: bool = False, out: Path | None = None
) -> None:
    """Run a training script, record some of its steps, and print the report's verdict. The training continues.

    A step ends when the optimiser that stepped first has stepped again. `-m package.module` runs a module. Under
    torchrun (`torchrun ... -m labtrace watch train.py`), each rank writes a file, all into one folder.

    Args:
        script: The script and its own options. Options of this command come before it.

    Options:
        steps: How many to record.
        warmup: How many to leave out before, without a profiler. One more warms the profiler up.
        calls: A step ends with a call of a network of this class, for scripts without an optimiser.
        stop: End the script after the recording.
        out: The trace. By default, the script's name with .json.gz, in this folder, and a number if there is one.
    """
    module = script[0] == "-m"
    name = script[1 if module else 0] if len(script) > module else "-m"
    if name.startswith("-"):
        raise LabError(f"{name} is not an option of watch. A script is needed, or -m and a module.")
    if not module and not Path(name).exists():
        raise LabError(f"{name}: there is no such script.")
    if steps < 1 or warmup < 1:
        raise LabError(f"--steps {steps} --warmup {warmup}: each must be at least 1.")
    out = out or unused(name.rpartition(".")[2] if module else Path(name).stem)
    check_writable(out)
    settings = json.dumps(dict(steps=steps, warmup=warmup, calls=calls, stop=stop, out=str(out.absolute())))
    # In place of this program, so that signals, exceptions and the exit code are the script's own.
    os.execv(sys.executable, [*PYTHON, "labtrace.watch", settings, *script])


def unused(stem: str, ends: tuple[str, ...] = (".json.gz", ".html", "")) -> Path:
    """A name for a trace, beside which there is no earlier one, no ranks' folder and no page. Or with other ends."""
    names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    free = (name for name in names if not any(Path(name + end).exists() for end in ends))
    return Path(f"{next(free)}{ends[0]}")


class Watch:
    """Counts the steps of a training, records some, and has the report printed.

    Args:
        steps, warmup, calls, stop, out: as for `watch`.
    """

    def __init__(self, steps: int, warmup: int, calls: str, stop: bool, out: str) -> None:
        self.steps, self.warmup, self.calls, self.stop, self.out = steps, warmup, calls, stop, Path(out)
        self.optimizer: Any = None  # a weak reference to the first that stepped
        self.since: Any = weakref.WeakKeyDictionary()  # how often each other optimiser has stepped since the first did
        self.ends: list[float] = []  # of the steps, seconds
        self.ended_before = 0  # steps, when a scaler began its own
        # At the edges of recorded steps: seconds that all threads had worked, that this one had, and waited for a core.
        self.used: list[tuple[float, ...]] = []
        self.whole: dict[str, bool] = {}  # by the name of a class: whether its networks are never parts of others
        self.profiler: Any = None  # while it records or warms up
        self.lock, self.thread = threading.RLock(), 0  # PyTorch's profiler belongs to the thread that started it
        self.hook: Any = None  # PyTorch's handle, None after the recording
        self.reported = False  # how it ended
        self.backward: Counter[int] = Counter()  # by thread, calls of it that have not returned
        self.ended_in_backward = False  # a step, of an optimiser that steps there
        self.memory = 0  # bytes, when the recording began
        self.about: dict[str, Any] = {}  # the recording's stamp

    def hook_into(self, torch: Any) -> None:
        """Has PyTorch tell of each step."""
        from torch.nn.modules import module
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        if self.calls:
            self.hook = module.register_module_forward_hook(self._called)
        else:
            self.hook = register_optimizer_step_post_hook(self._stepped)
            _around(torch.amp.GradScaler, "step", self._begin_scaled, self._end_scaled)
        module.register_module_module_registration_hook(self._built)
        module.register_module_parameter_registration_hook(self._built)
        # A long evaluation between two steps must not fill the memory with events, nor a step of many passes.
        _around(_BaseDataLoaderIter, "__next__", self._check_memory)
        _around(torch.autograd, "backward", self._begin_backward, self._end_backward)
        _around(torch.profiler._KinetoProfile, "prepare_trace", self._give_way)
        _around(torch.autograd.profiler.profile, "__enter__", self._give_way)

    def _built(self, module: Any, _name: str, part: Any) -> None:
        self.whole.setdefault(type(module).__name__, True)
        self.whole[type(part).__name__] = False

    def _called(self, module: Any, _inputs: Any, _output: Any) -> None:
        if type(module).__name__ == self.calls:
            self.step_ended()

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._elsewhere() and self._ends_step(optimizer):
            self.step_ended()

    def _ends_step(self, optimizer: Any) -> bool:
        """Whether it is the first that stepped, or follows it: for a second fold, or a task's inner loop before."""
        first = self.optimizer and self.optimizer()
        if first is not optimizer:
            self.since[optimizer] = self.since.get(optimizer, 0) + 1
            if first and self.since[optimizer] <= LONGEST_ABSENCE:
                return False
            self.optimizer = weakref.ref(optimizer)
        self.since.clear()
        return True

    def _begin_scaled(self, *_args: Any) -> None:
        self.ended_before = len(self.ends)

    def _end_scaled(self, _scaler: Any, optimizer: Any, *_args: Any) -> None:
        """A step of the training ends, too, where a scaler leaves the optimiser's out, for an infinite gradient."""
        if self.optimizer and optimizer is self.optimizer() and len(self.ends) == self.ended_before:
            self.step_ended()

    def _begin_backward(self, *_args: Any) -> None:
        self._check_memory()
        self.backward[threading.get_ident()] += 1

    def _end_backward(self, *_args: Any) -> None:
        self.backward[threading.get_ident()] -= 1
        if self.ended_in_backward and not self._in_backward():
            self.ended_in_backward = False
            self.step_ended()

    def _give_way(self, profiler: Any) -> None:
        """Ends the recording if the script starts a profiler of its own: PyTorch runs only one."""
        if not self.hook or profiler is self.profiler or self._elsewhere():
            return
        if self.recorded and self.profiler:
            self._finish()
        else:
            if self.profiler:
                self.profiler.on_trace_ready = None
                self.profiler.stop()
            self.profiler = None
            self._leave("nothing is recorded, since the script has a profiler of its own.")

    def _in_backward(self) -> bool:
        """Whether this thread is in a backward pass, which it called, or as one of PyTorch's own threads."""
        of_pytorch = isinstance(threading.current_thread(), threading._DummyThread)
        return self.backward.total() > 0 if of_pytorch else self.backward[threading.get_ident()] > 0

    def _elsewhere(self) -> bool:
        """Whether another thread is recorded."""
        return self.profiler is not None and self.thread != threading.get_ident()

    def step_ended(self) -> None:
        """Starts the recording, continues with it, or ends it. Only one thread comes in at a time."""
        with self.lock:
            if self._in_backward():  # where a profiler can neither start nor end
                self.ended_in_backward = True
            elif self.hook and not self._elsewhere():
                self._count_step()

    def _count_step(self) -> None:
        self.ends.append(time.perf_counter())
        if len(self.ends) > self.warmup:
            self.used.append((time.process_time(), time.thread_time(), *waited_for_core()))
        if len(self.ends) == self.warmup:
            self._start()
        elif self.recorded == self.steps:
            self._finish()
        elif self.profiler:
            self.profiler.step()
            self._check_memory()

    @property
    def recorded(self) -> int:
        """How many whole steps were recorded, after those that warm up and the profiler's own."""
        return max(0, len(self.ends) - self.warmup - 1)

    def _start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule, supported_activities

        # Not at the end, in the last step: the stamp takes some 40 ms, and would seem to be work of the script.
        self.about = stamp() | {"torch": torch.__version__, "threads": torch.get_num_threads(), "cores": cores()}
        activities = supported_activities()
        if activities == {ProfilerActivity.CPU}:
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or it complains that there is no GPU
        one_more = schedule(wait=0, warmup=1, active=self.steps + 1)  # `_finish` ends it before
        # acc_events=True would make an object of Python of each event, which takes several times the memory.
        profiler = profile(activities=activities, schedule=one_more, on_trace_ready=self._write, record_shapes=True)
        self.memory = peak_memory()
        self.profiler, self.thread = profiler, threading.get_ident()
        with warnings.catch_warnings(action="ignore"):  # PyTorch 2.11: only the events of one cycle are kept
            profiler.start()

    def _check_memory(self, *_args: Any) -> None:
        records = self.profiler and len(self.ends) > self.warmup  # and does not only warm up
        if records and not self._elsewhere() and peak_memory() - self.memory > MOST_MEMORY:
            say(f"watch: the process has grown by {MOST_MEMORY >> 30} GiB since the recording began, which ends now.")
            self._finish()

    def _finish(self) -> None:
        import torch

        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # the last kernels belong to the recording
        profiler, self.profiler = self.profiler, None
        self.about["whole_steps"] = self.recorded  # of a script that ended early, the last step is no whole one
        if self.recorded:
            seconds = self.ends[-1] - self.ends[self.warmup]
            used = zip(MEASURED, self.used[0], self.used[-1], strict=False)
            self.about |= {name: (after - before) / seconds for name, before, after in used}
        profiler.add_metadata_json("labkit", json.dumps(self.about))  # taken only while it records
        profiler.stop()
        if self.stop:
            sys.exit()

    def _write(self, profiler: Any) -> None:
        """Writes the trace and has the report printed. A failure is reported, and the training continues."""
        path, rank = self.out, int(os.environ.get("RANK", 0))
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            path = path.with_name(path.name.partition(".json")[0]) / f"rank{rank}.json.gz"
        try:
            with atomic_write(path) as part:
                profiler.export_chrome_trace(str(part))
        except LabError as error:
            self._leave(str(error))
            return
        much = f"{self.recorded} steps" if self.recorded else "parts of one step"
        self._leave(f"{much} of {os.path.basename(sys.argv[0])} are in {path}{self._cost()}")
        if rank == 0:
            subprocess.run([*PYTHON, "labtrace", "report", path], stdout=sys.__stderr__)
            if path.parent != self.out.parent:
                say(f"watch: labtrace report {path.parent} tells who waited for whom, when all ranks have written.")

    def _cost(self) -> str:
        """How long a step took before and during the recording, in words."""
        times = [end - begin for begin, end in itertools.pairwise(self.ends)]
        before, during = times[1 : self.warmup - 1], times[self.warmup :]
        if not before or not during:
            return "."
        before_ms, during_ms = 1e3 * statistics.median(before), 1e3 * statistics.median(during)
        return f". A step took {before_ms:,.1f} ms before, and {during_ms:,.1f} while it was recorded (medians)."

    def _leave(self, message: str) -> None:
        if self.hook:
            self.hook.remove()
        self.hook, self.reported = None, True
        say(f"watch: {message}")

    def close(self) -> None:
        """Writes what there is, or says why there is nothing, when the script has ended."""
        self.stop = False
        if self._elsewhere():
            self._leave("nothing is recorded: the thread that trained has ended.")
        elif self.recorded and self.profiler:
            self._finish()
        elif self.ends and self.hook:
            ended = f"the script ended after {len(self.ends)} steps, and {self.warmup + 1} warm up"
            self._leave(f"nothing is recorded: {ended}.")
        elif not self.reported and not self.out.exists():  # nor has a process written it that was forked from this one
            what = f"no {self.calls} was called" if self.calls else "no optimiser of PyTorch stepped"
            if isinstance(sys.exception(), Exception):
                what = "the script failed before its first step"
            self._leave(f"nothing is recorded: {what}.{self._advice()}")

    def _advice(self) -> str:
        """What may help where no step was seen."""
        networks = ", ".join(name for name, whole in self.whole.items() if whole)
        text = f" With --calls NAME a step is a call of a network. Here are {networks}." if networks else ""
        if (worked := sum(os.times()[2:4])) > LONGEST_START:
            text += (
                f" Processes that it started worked for {worked:,.0f} s: let torchrun ... -m labtrace watch start them."
            )
        return text


def _around(owner: Any, name: str, before: Callable[..., None], after: Callable[..., None] | None = None) -> None:
    """Has each call of a function begin with one of `before` and end with one of `after`, with the same arguments."""
    function = getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        try:
            return function(*args, **kwargs)
        finally:
            if after:
                after(*args)

    setattr(owner, name, called)


def peak_memory() -> int:
    """The most bytes that this process has had, or 0 where nobody knows."""
    with suppress(ImportError):  # on Windows
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES
    return 0


def main() -> None:
    """Runs the script under a `Watch`: ``python -m labtrace.watch SETTINGS script ...``, which `watch` starts."""
    _, settings, *sys.argv = sys.argv
    watched = Watch(**json.loads(settings))
    after_import("torch", watched.hook_into)  # and not before: PyTorch reads environment variables then
    try:
        if sys.argv[0] == "-m":
            sys.argv = sys.argv[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            script = os.path.abspath(sys.argv[0])
            sys.path.insert(0, os.path.dirname(script))
            runpy.run_path(script, run_name="__main__")
    finally:
        watched.close()


if __name__ == "__main__":
    main()
