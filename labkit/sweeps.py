"""Sweeps: Optuna proposes settings, and submitit runs each trial as a job of its own, on this machine or on Slurm.

One driver submits the jobs and is the only one that writes the study, so nothing is shared and nothing is locked. A job
that was killed is submitted again and goes on from its checkpoint; a driver that was killed is started again.
"""

from __future__ import annotations

import csv
import math
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

from labkit.errors import CheckpointError, DataError, LabkitError, TrainingError, check_known
from labkit.files import check_folder, locked

if TYPE_CHECKING:
    import optuna
    import pandas
    import submitit
    from optuna.distributions import BaseDistribution

JOBS = "jobs"  # folder of submitit's files
SCORES = "scores.csv"  # in a trial's folder: a row a score, its step first
FORMS = "LOW:HIGH, LOW:HIGH:log, or choices: A,B,C"
KINDS: dict[type | None, str] = {int: "a whole number", float: "a number"}
TRIES = 3  # jobs of one trial that may die
STARTUP = 5  # trials that end before the median counts
ON_SLURM = 8  # jobs at once, where nobody says how many
YEAR = 365 * 24 * 60  # minutes
POLL = 1.0  # seconds between two looks at the jobs
STUDY = "sweep"


def sweep(
    objective: Callable[..., float],
    space: Mapping[str, Any],
    trials: int,
    out: Path | str,
    *,
    at_once: int | None = None,
    cluster: str = "local",
    slurm: str = "",
    prune_after: int | None = None,
    score: str | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> pandas.DataFrame:
    """Searches the settings for which `objective` is smallest; the same call goes on with a sweep that was stopped.

    Each trial is a job, so `objective` runs in a process of its own: on this machine, with its own share of the
    processors or its own GPU, or as a job of Slurm. A job that is killed runs `objective` again with the same folder
    and settings, three times at most, so a long objective should keep a checkpoint there, as `labkit.fit` does. Jobs
    outlive their driver, and the next driver waits for them.

    Args:
        objective: called as ``objective(folder, **settings)``, with the trial's own folder, a `Path`; gives the number
            to minimise. `labkit.sweeps.Train` is a run of `labkit train`.
        space: by setting one of Optuna's distributions, or "LOW:HIGH" (whole numbers if both are), "LOW:HIGH:log" or
            "A,B,C".
        trials: how many there are. A later call may ask for more.
        out: folder of the sweep: the study ``sweep.db`` and a folder for each trial.
        at_once: jobs at the same time; None takes one for each GPU, or else for each processor, and 8 on Slurm.
        cluster: "local" or "slurm".
        slurm: options of sbatch for each job, such as "--gpus=1 --cpus-per-task=4 --time=04:00:00".
        prune_after: stops a trial whose best score after this step or later is worse than the median of the others at
            the same step, once five have ended. The scores are those in the file ``scores.csv`` in the trial's folder,
            whose columns are step and `score`; `objective` appends to it. None stops no trial.
        score: the column of that file; None takes `objective.score`, or "score".
        seed: of Optuna's TPE sampler.
        say: called with each line of progress.

    Returns:
        the table of all trials, as from `labkit.sweeps.table`.

    Raises:
        LabkitError: an argument cannot be used; `out` holds another sweep; or a trial ended by an error that its
            settings do not explain, such as a full disk.
    """
    import optuna

    check_known("cluster", cluster, ("local", "slurm"))
    if not space:
        raise LabkitError(f"nothing to search: give a setting a range, for example --lr 1e-4:1e-3:log ({FORMS}).")
    distributions = {name: distribution(name, given) for name, given in space.items()}
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # `say` has what there is to say
    pruner = optuna.pruners.MedianPruner(STARTUP, prune_after - 1) if prune_after else optuna.pruners.NopPruner()
    out = Path(out).absolute()
    check_folder(out)
    with locked(out):
        study = optuna.create_study(storage=_storage(out), study_name=STUDY, pruner=pruner, load_if_exists=True)
        name = getattr(objective, "__qualname__", str(objective))
        _check_same(study, out, {"objective": name, "space": {k: str(v) for k, v in distributions.items()}})
        executors = _executors(out / JOBS, cluster, slurm, at_once)
        _Driver(
            study,
            out,
            objective,
            distributions,
            executors,
            cluster,
            seed,
            score or str(getattr(objective, "score", "score")),
            say,
        ).run(trials)
    return table(out)


@dataclass
class _Running:
    """A trial whose job was submitted; `slot` is the number of its executor."""

    trial: optuna.Trial
    job: submitit.Job
    slot: int
    tries: int = 1
    pruned: bool = False


@dataclass
class _Driver:
    """Keeps as many jobs running as there are executors, until all trials have ended."""

    study: optuna.Study
    out: Path
    objective: Callable[..., float]
    space: dict[str, Any]
    executors: list[submitit.Executor]
    cluster: str
    seed: int
    score: str
    say: Callable[[str], None]

    def run(self, trials: int) -> None:
        left = [trial for trial in self._trials() if not trial.state.is_finished()]  # by a driver that was stopped
        running: list[_Running] = []
        while True:
            for slot in sorted(set(range(len(self.executors))) - {one.slot for one in running}):
                if left:  # the same slot has the same GPU, which the trial's old job may still hold
                    old = next((trial for trial in left if trial.user_attrs.get("slot") == slot), left[0])
                    left.remove(old)
                    running.append(self._taken_over(old, slot))
                elif len(self._trials()) < trials:
                    running.append(self._submitted(self._asked(), slot))
            if not running:
                return
            alive = self._alive(running)
            for one in running:
                self._report(one)
            still = [one if one.job.job_id in alive else self._ended(one) for one in running]
            running = [one for one in still if one is not None]
            time.sleep(POLL)

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _asked(self) -> optuna.Trial:
        import optuna

        # a seed for each trial: a driver that goes on proposes the same
        self.study.sampler = optuna.samplers.TPESampler(seed=(self.seed + len(self._trials())) % 2**32)
        return self.study.ask(self.space)

    def _taken_over(self, old: optuna.trial.FrozenTrial, slot: int) -> _Running:
        import optuna

        self.say(f"trial {old.number} goes on: its driver was stopped")
        trial, executor = optuna.Trial(self.study, old._trial_id), self.executors[slot]
        if self.cluster == "slurm" and "job" in old.user_attrs:
            job = executor.job_class(_folder(self.out, old.number) / JOBS, old.user_attrs["job"])
            return _Running(trial, job, slot)
        return self._submitted(trial, slot)  # which waits for the old job, if that runs still

    def _submitted(self, trial: optuna.Trial, slot: int, tries: int = 1) -> _Running:
        folder, executor = _folder(self.out, trial.number), self.executors[slot]
        executor.folder = folder / JOBS  # each trial's own: submitit names files by process, and numbers come again
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, not for submitit around it
        try:
            job = executor.submit(_in_job, self.objective, folder, trial.params)
        finally:
            signal.signal(signal.SIGINT, before)
        trial.set_user_attr("job", job.job_id)
        trial.set_user_attr("slot", slot)
        return _Running(trial, job, slot, tries)

    def _report(self, one: _Running) -> None:
        """Tells the study of new scores, and stops a trial that is worse than the median of the others."""
        known = self._trials()[one.trial.number].intermediate_values
        for step, value in read_scores(_folder(self.out, one.trial.number), self.score).items():
            if step not in known:
                one.trial.report(value, step)
        if not one.pruned and one.trial.should_prune():
            one.pruned = True
            if self.cluster == "slurm":
                one.job.cancel()
            else:
                os.kill(int(one.job.job_id), signal.SIGTERM)

    def _alive(self, running: list[_Running]) -> set[str]:
        """The ids of the jobs that run or wait."""
        if self.cluster == "local":
            return {one.job.job_id for one in running if not one.job.done()}
        # not by sacct, which knows nothing where Slurm keeps no accounts
        listed = subprocess.run(["squeue", "--me", "--noheader", "--format=%i"], capture_output=True, text=True)
        return {one.job.job_id for one in running} if listed.returncode else set(listed.stdout.split())

    def _ended(self, one: _Running) -> _Running | None:
        """Tells the study how a trial ended; a job that died is submitted again, and returned."""
        if one.pruned:
            self._tell(one.trial, "PRUNED", "stopped, worse than the median")
        elif not one.job.paths.result_pickle.exists():
            if one.tries < TRIES:
                self.say(f"trial {one.trial.number}: its job was killed, and is submitted again")
                return self._submitted(one.trial, one.slot, one.tries + 1)
            self._tell(one.trial, "FAIL", f"failed, its job was killed {TRIES} times: see {one.job.paths.stderr}")
        elif one.job.exception() is not None:
            why = one.job.paths.stderr.read_text().strip().splitlines()[-1]  # the last line of a traceback
            raise LabkitError(
                f"trial {one.trial.number}: {why} (all in {one.job.paths.stderr}). Run the same to go on."
            )
        elif isinstance(result := one.job.result(), str):
            self._tell(one.trial, "FAIL", f"failed: {result}")
        else:
            self._tell(one.trial, "COMPLETE", f"complete: {result:.4g}", result)
        return None

    def _tell(self, trial: optuna.Trial, state: str, how: str, value: float | None = None) -> None:
        from optuna.trial import TrialState

        trial.set_user_attr("how", how)
        self.study.tell(trial.number, value, TrialState[state])
        settings = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in trial.params.items())
        self.say(f"trial {trial.number} {how}, {', '.join(settings)}")


def _in_job(objective: Callable[..., float], folder: Path, settings: dict[str, Any]) -> float | str:
    """What a job runs. Gives the objective's number, or says why it cannot be had with these settings."""
    from filelock import FileLock

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `labkit.fit` saves when it comes
    signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGTERM))  # submitit's, before the time is up
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".job"):  # held by a job that outlived its driver: we go on where it ends
        try:
            return objective(folder, **settings)
        except LabkitError as error:
            if isinstance(error, CheckpointError | DataError) and not isinstance(error, TrainingError):
                raise  # a full disk or missing pictures are no fault of the settings
            return str(error)


@dataclass(frozen=True)
class Train:
    """An objective for `labkit.sweep`: runs `labkit train` in the trial's folder, and gives its last score.

    Args:
        options: of `labkit train`, without --out, as on the command line: "--data fruit --steps 600".
        score: a column of ``scores.csv``: "shortfall" for fruit, "kid" or "fid" for photographs.
        times: how often a trial is scored, evenly over its steps.
    """

    options: str
    score: str = "shortfall"
    times: int = 1

    def __str__(self) -> str:
        return f"labkit train {self.options}"

    def __call__(self, folder: Path, **settings: Any) -> float:
        from labkit.cli import app

        arguments = ["--out", str(folder), "--scores", str(self.times), *shlex.split(self.options)]
        if status := app(["train", *arguments, *in_words(settings), "--quiet"], standalone_mode=False):
            sys.exit(status)  # it was stopped, and saved
        return list(read_scores(folder, self.score).values())[-1]


def in_words(settings: Mapping[str, Any]) -> list[str]:
    """The settings as options of the command line."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def read_scores(folder: Path, score: str) -> dict[int, float]:
    """The scores of a run by their step, from the column `score` of its file."""
    if not (folder / SCORES).exists():
        return {}
    with open(folder / SCORES, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if rows:
        check_known("score", score, [name for name in rows[0] if name != "step"])
    return {int(row["step"]): float(row[score]) for row in rows}


def distribution(name: str, given: Any, kind: type | None = None) -> BaseDistribution:
    """What Optuna draws a setting from.

    Args:
        name: of the setting, for errors.
        given: "LOW:HIGH", "LOW:HIGH:log" or "A,B,C"; or a distribution of Optuna's, which is returned.
        kind: int, float or str; None takes whole numbers for ints, other numbers for floats, and the rest for names.

    Raises:
        LabkitError: the range or the choices cannot be used.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(given, str):
        return given
    try:
        if ":" not in given:
            return CategoricalDistribution([_value(part.strip(), kind) for part in given.split(",")])
        low, high, *log = given.split(":")
        if log not in ([], ["log"]):
            raise ValueError(f"{log[0]!r} is not 'log'.")
        ends = _value(low, kind), _value(high, kind)
        make = IntDistribution if all(isinstance(end, int) for end in ends) else FloatDistribution
        return make(*ends, log=bool(log))
    except (ValueError, TypeError) as error:
        raise LabkitError(f"{name}={given!r}: {error} Give {FORMS}.") from error


def _value(text: str, kind: type | None) -> Any:
    for convert in (kind,) if kind else (int, float, str):
        with suppress(ValueError):
            value = convert(text)
            if value != "" and value == value:
                return value
    raise ValueError(f"{text!r} is not {KINDS.get(kind, 'a value')}.")


def table(out: Path | str) -> pandas.DataFrame:
    """The trials of a sweep so far, the best first; those that were not trained to the end come last.

    Returns:
        One row a trial, by its number:

        | column | meaning |
        |---|---|
        | state | "complete", "pruned", "failed" or "running" |
        | value | of the objective, or the last score of a trial that has none yet |
        | one for each setting | its value |
        | folder | of the trial |
        | how | the trial ended |

    Raises:
        LabkitError: there is no sweep in `out`.
    """
    import pandas

    rows = []
    for trial in load_study(out).get_trials(deepcopy=False):
        state = {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
        scores = trial.intermediate_values
        value = scores[max(scores)] if trial.value is None and scores else trial.value
        where = {"folder": str(_folder(Path(out), trial.number)), "how": trial.user_attrs.get("how", "")}
        rows.append({"trial": trial.number, "state": state, "value": value, **trial.params, **where})
    rows.sort(key=lambda row: (row["state"] != "complete", math.inf if row["value"] is None else row["value"]))
    return pandas.DataFrame(rows, columns=None if rows else ["trial", "state", "value"]).set_index("trial")


def load_study(out: Path | str) -> optuna.Study:
    """Optuna's study of the sweep in the folder `out`. Raises `LabkitError` if there is none."""
    import optuna

    if not Path(out, "sweep.db").is_file():
        raise LabkitError(f"{out}: there is no sweep. Is the path right, and was the sweep ever started?")
    return optuna.load_study(study_name=STUDY, storage=_storage(Path(out)))


def _storage(out: Path) -> str:
    return f"sqlite:///{out.absolute()}/sweep.db"


def _folder(out: Path, number: int) -> Path:
    return out / f"trial_{number:04d}"


def _check_same(study: optuna.Study, out: Path, wanted: dict[str, Any]) -> None:
    """Raises `LabkitError` if the study is of another sweep."""
    saved = study.user_attrs.get("settings", wanted)
    if differing := [
        f"{name}: {saved[name]} there, {wanted[name]} here" for name in wanted if saved[name] != wanted[name]
    ]:
        raise LabkitError(
            f"{out}: the sweep in this folder has other settings: {'; '.join(differing)}. Give the same to go on with "
            "it, or name another folder."
        )
    study.set_user_attr("settings", wanted)


def _executors(folder: Path, cluster: str, slurm: str, at_once: int | None) -> list[submitit.Executor]:
    """One executor for each job that may run at the same time."""
    import submitit
    import torch

    if cluster == "slurm":
        if not shutil.which("sbatch"):
            raise LabkitError("cluster='slurm': this machine has no sbatch. Start the sweep where jobs are submitted.")
        options = dict(option.removeprefix("--").partition("=")[::2] for option in shlex.split(slurm))
        executor = submitit.SlurmExecutor(folder)
        executor.update_parameters(job_name="labkit-sweep", additional_parameters=options)
        return [executor] * (at_once or ON_SLURM)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(k) for k in range(torch.cuda.device_count())]
    n, cores = at_once or len(gpus) or os.cpu_count() or 1, os.cpu_count() or 1
    executors: list[submitit.Executor] = []
    for slot in range(n):
        share = f"OMP_NUM_THREADS={max(1, cores // n)} CUDA_VISIBLE_DEVICES={gpus[slot % len(gpus)] if gpus else ''}"
        executors.append(submitit.LocalExecutor(folder, python=f"env {share} {shlex.quote(sys.executable)}"))
        executors[-1].update_parameters(timeout_min=YEAR)
    return executors
