"""Sweeps: Optuna proposes settings, and submitit runs each trial as a job of its own, on this machine or on Slurm.

One driver submits the jobs and is the only one that writes the study, so nothing is shared and nothing is locked. A job
that was killed is submitted again and continues from its checkpoint. A driver that was killed is started again.
"""

from __future__ import annotations

import collections
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import submitit
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from labkit.errors import CheckpointError, DataError, LabkitError, explained
from labkit.locks import locked
from labtrace.errors import check_known

if TYPE_CHECKING:  # a job does not need it
    import pandas

STUDY = "sweep"
JOBS_PER_TRIAL = 3  # a trial fails when this many of its jobs have been killed
POLL_SECONDS = 1.0  # between two questions which jobs have ended


def sweep(
    objective: Callable[..., float],
    space: Mapping[str, Any],
    trials: int,
    out: Path | str,
    *,
    at_once: int | None = None,
    cluster: str = "local",
    slurm: str = "",
) -> pandas.DataFrame:
    """Searches the settings for which `objective` is smallest. The same call continues with a sweep that was stopped.

    Each trial is a job, so `objective` runs in a process of its own: on this machine, with its own share of the
    processors or its own GPU, or as a job of Slurm. A job that is killed runs `objective` again with the same folder
    and settings, three times at most, so a long objective should keep a checkpoint there, as `labkit.fit` does. Jobs
    outlive their driver, and the next driver waits for them.

    Args:
        objective: called as ``objective(folder, **settings)``, with the trial's own folder, a `Path`. It gives the
            number to minimise.
        space: by setting one of Optuna's distributions, or "LOW:HIGH" (whole numbers if both are), "LOW:HIGH:log" or
            "A,B,C".
        trials: how many there are. A later call may ask for more.
        out: folder of the sweep: the study ``sweep.db`` and a folder for each trial.
        at_once: jobs at the same time. None takes one for each GPU, or else for each processor, and 8 on Slurm.
        cluster: "local" or "slurm".
        slurm: options of sbatch for each job, such as "--gpus=1 --cpus-per-task=4 --time=04:00:00".

    Returns:
        the table of all trials, as from `labkit.sweeps.table`.

    Raises:
        LabkitError: an argument cannot be used, `out` holds another sweep, or a trial ended by an error that its
            settings do not explain, such as a full disk.
    """
    check_known("cluster", cluster, ("local", "slurm"))
    if not space:
        raise LabkitError("nothing to search: give a setting a range, for example --lr 1e-4:1e-3:log.")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    out = Path(out).absolute()
    distributions = {name: distribution(name, given) for name, given in space.items()}
    executors = _on_slurm(out, slurm, at_once) if cluster == "slurm" else _on_this_machine(out, at_once)
    with locked(out):
        study = optuna.create_study(storage=_storage(out), study_name=STUDY, load_if_exists=True)
        searched = ", ".join(f"{name} {each}" for name, each in distributions.items())
        settings = f"{getattr(objective, '__qualname__', objective)} over {searched}"
        if (saved := study.user_attrs.get("settings", settings)) != settings:
            raise LabkitError(f"{out} holds another sweep: {saved}, not {settings}. Give the same, or another folder.")
        study.set_user_attr("settings", settings)
        _Driver(study, out, objective, distributions, executors, cluster).run(trials)
    return table(out)


@dataclass
class _Driver:
    """Keeps as many jobs running as there are executors, until all trials have ended."""

    study: optuna.Study
    out: Path
    objective: Callable[..., float]
    space: dict[str, BaseDistribution]
    executors: list[submitit.Executor]  # by slot
    cluster: str

    def run(self, trials: int) -> None:
        unfinished = [trial for trial in self.study.trials if not trial.state.is_finished()]
        running: dict[int, tuple[optuna.Trial, submitit.Job]] = {}
        deaths = collections.Counter[int]()
        while True:
            for slot in range(len(self.executors)):
                if slot not in running and unfinished:
                    trial = optuna.Trial(self.study, unfinished.pop(0)._trial_id)
                    print(f"trial {trial.number} continues: its driver was stopped", flush=True)
                    running[slot] = trial, self.submitted(trial, slot)
                elif slot not in running and len(self.study.trials) < trials:
                    # the seed depends on the trial alone, so that a driver that continues proposes the same
                    self.study.sampler = optuna.samplers.TPESampler(seed=len(self.study.trials))
                    trial = self.study.ask(self.space)
                    running[slot] = trial, self.submitted(trial, slot)
            if not running:
                return
            time.sleep(POLL_SECONDS)
            alive = self.alive([job for _, job in running.values()])
            ended = {slot: both for slot, both in running.items() if both[1].job_id not in alive}
            for slot, (trial, job) in ended.items():
                if job.paths.result_pickle.exists() or deaths[trial.number] == JOBS_PER_TRIAL - 1:
                    self.tell(trial, job)
                    del running[slot]
                else:
                    print(f"trial {trial.number}: its job was killed, and is submitted again", flush=True)
                    deaths[trial.number] += 1
                    trial.set_user_attr("job", None)
                    running[slot] = trial, self.submitted(trial, slot)

    def submitted(self, trial: optuna.Trial, slot: int) -> submitit.Job:
        """A new job for this trial, which waits for an earlier driver's job. On Slurm, that earlier job itself."""
        folder, executor, old = _folder(self.out, trial.number), self.executors[slot], trial.user_attrs.get("job")
        executor.folder = folder / "jobs"  # each trial's own: submitit names files by process, and numbers come again
        if old and self.cluster == "slurm":
            return submitit.SlurmJob(executor.folder, old)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, not for submitit around it
        try:
            job = executor.submit(_in_job, self.objective, folder, trial.params)
        finally:
            signal.signal(signal.SIGINT, before)
        trial.set_user_attr("job", job.job_id)
        return job

    def alive(self, jobs: list[submitit.Job]) -> set[str]:
        """The ids of those jobs that run or wait."""
        if self.cluster == "local":
            return {job.job_id for job in jobs if not job.done()}
        # sacct would know nothing where Slurm keeps no accounts
        listed = subprocess.run(["squeue", "--me", "--noheader", "--format=%i"], capture_output=True, text=True)
        return {job.job_id for job in jobs} if listed.returncode else set(listed.stdout.split())

    def tell(self, trial: optuna.Trial, job: submitit.Job) -> None:
        """Tells the study how a trial ended. Raises `LabkitError` if its settings are not the reason."""
        value, state = None, TrialState.FAIL
        if not job.paths.result_pickle.exists():
            how = f"killed {JOBS_PER_TRIAL} times: see {job.paths.stderr}"
        elif job.exception() is not None:
            why = job.paths.stderr.read_text().strip().splitlines()[-1]  # the last line of a traceback
            raise LabkitError(f"trial {trial.number}: {why} (all in {job.paths.stderr}). Run the same to continue.")
        elif isinstance(result := job.result(), str):
            how = result
        else:
            value, state, how = result, TrialState.COMPLETE, f"{result:.4g}"
        trial.set_user_attr("how", how)
        self.study.tell(trial, value, state)
        settings = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in trial.params.items())
        print(f"trial {trial.number} {state.name.lower()}: {how}, {', '.join(settings)}", flush=True)


def _in_job(objective: Callable[..., float], folder: Path, settings: dict[str, Any]) -> float | str:
    """Runs in the job. Gives the objective's number, or the reason why these settings have none."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `labkit.fit` saves when it comes
    signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGTERM))  # submitit's, before the time is up
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".job"):  # held by a job that outlived its driver: we continue where it ends
        try:
            return objective(folder, **settings)
        except LabkitError as error:
            if isinstance(error, CheckpointError | DataError):
                raise  # a full disk or missing pictures are no fault of the settings
            return str(error)


def distribution(name: str, given: Any) -> BaseDistribution:
    """The distribution that Optuna draws a setting from.

    Args:
        name: of the setting, for errors.
        given: "LOW:HIGH" (whole numbers if both are), "LOW:HIGH:log" or "A,B,C", or a distribution of Optuna's, which
            is returned.

    Raises:
        LabkitError: the range cannot be used.
    """
    if not isinstance(given, str):
        return given
    if ":" not in given:
        return CategoricalDistribution([_value(part) for part in given.split(",")])
    low, high, *log = given.split(":")
    with explained(f"{name}={given!r}", "Give LOW:HIGH, LOW:HIGH:log, or choices: A,B,C."):
        if log not in ([], ["log"]):
            raise ValueError(f"{log[0]!r} is not 'log'.")
        if isinstance(_value(low), int) and isinstance(_value(high), int):
            return IntDistribution(int(low), int(high), log=bool(log))
        return FloatDistribution(float(low), float(high), log=bool(log))


def _value(text: str) -> Any:
    for convert in (int, float):
        with suppress(ValueError):
            return convert(text)
    return text.strip()


def table(out: Path | str) -> pandas.DataFrame:
    """The trials of a sweep so far, the best first. Those that were not trained to the end come last.

    Returns:
        One row a trial, by its number:

        | column | meaning |
        |---|---|
        | state | "complete", "fail" or "running" |
        | value | of the objective |
        | one for each setting | its value |
        | folder | of the trial |
        | how | the trial ended |

    Raises:
        LabkitError: there is no sweep in `out`.
    """
    import pandas

    rows = []
    for trial in load_study(out).get_trials(deepcopy=False):
        where = {"folder": str(_folder(Path(out), trial.number)), "how": trial.user_attrs.get("how", "")}
        state = {"trial": trial.number, "state": trial.state.name.lower(), "value": trial.value}
        rows.append(state | trial.params | where)
    trials = pandas.DataFrame(rows, columns=None if rows else ["trial", "state", "value"])
    return trials.set_index("trial").sort_values("value")


def load_study(out: Path | str) -> optuna.Study:
    """Optuna's study of the sweep in the folder `out`. Raises `LabkitError` if there is none."""
    if not Path(out, "sweep.db").is_file():
        raise LabkitError(f"{out}: there is no sweep. Is the path right, and was the sweep ever started?")
    return optuna.load_study(study_name=STUDY, storage=_storage(Path(out)))


def _storage(out: Path) -> str:
    return f"sqlite:///{out.absolute()}/sweep.db"


def _folder(out: Path, number: int) -> Path:
    return out / f"trial_{number:04d}"


def _on_slurm(out: Path, slurm: str, at_once: int | None) -> list[submitit.Executor]:
    """An executor for each job that may run or wait at the same time."""
    if not shutil.which("sbatch"):
        raise LabkitError("cluster='slurm': this machine has no sbatch. Start the sweep where jobs are submitted.")
    executor = submitit.SlurmExecutor(out)
    options = dict(option.removeprefix("--").partition("=")[::2] for option in shlex.split(slurm))
    executor.update_parameters(job_name="labkit-sweep", additional_parameters=options)
    return [executor] * (at_once or 8)


def _on_this_machine(out: Path, at_once: int | None) -> list[submitit.Executor]:
    """An executor for each job that may run at the same time: each with its GPU, and with its share of the cores."""
    import torch

    visible, cores = os.environ.get("CUDA_VISIBLE_DEVICES"), os.cpu_count() or 1
    gpus = visible.split(",") if visible else [str(k) for k in range(torch.cuda.device_count())]
    executors: list[submitit.Executor] = []
    for slot in range(n := at_once or len(gpus) or cores):
        share = f"OMP_NUM_THREADS={max(1, cores // n)} CUDA_VISIBLE_DEVICES={gpus[slot % len(gpus)] if gpus else ''}"
        executors.append(submitit.LocalExecutor(out, python=f"env {share} {shlex.quote(sys.executable)}"))
        executors[-1].update_parameters(timeout_min=365 * 24 * 60)  # submitit asks for a limit
    return executors
