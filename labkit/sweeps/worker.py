"""One worker of a sweep: it takes a trial, trains it, tells the journal, and takes the next.

One lock serves all workers: only under it one chooses its next trial, and only under it a trial is finished. So the
number of trials is a limit for all workers together, and a trial is finished once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from labkit import recipes
from labkit.data.fruit import FruitData
from labkit.errors import LabkitError, TrainingError
from labkit.measure.quality import GOAL, quality
from labkit.models import MODELS
from labkit.step import Step
from labkit.sweeps import journal
from labkit.sweeps.heartbeat import Heartbeat, Watch
from labkit.sweeps.heartbeat import read as read_heartbeat
from labkit.sweeps.space import Space, Value
from labkit.training.fit import fit
from labkit.training.run import Run
from labkit.variants.registry import make_step

if TYPE_CHECKING:
    import optuna

LOOKS = 10  # at a trial's quality, the last of them at its end
UNPRUNED = 5  # trials that end before the median counts
POLL = 1.0  # seconds between two looks at the journal, while others train the last trials


@dataclass
class Claim:
    """A trial that this worker trains: new, or left by a worker that died."""

    trial: optuna.Trial
    params: dict[str, Value]
    folder: Path
    heartbeat: Heartbeat
    reported: set[int]  # steps


class _LostError(Exception):
    """Another worker has taken the trial over, since this one was silent for too long."""


class Worker:
    """One of the processes that work on a sweep."""

    def __init__(
        self, data: FruitData, recipe: recipes.Recipe, space: Space, options: dict[str, Any], device: torch.device
    ):
        self.data, self.recipe, self.space, self.options, self.device = data, recipe, space, options, device
        self.every = max(1, recipe.steps // LOOKS)

    # ---- before the first trial

    def check(self) -> None:
        """Raises `LabkitError` if a value in the search space cannot be used by itself."""
        examples = {name: searched.examples for name, searched in self.space.items()}
        fixed = {name: values[0] for name, values in examples.items() if len(values) == 1}
        size = self.data.size
        for name, values in examples.items():
            for value in values:
                step = self.step({**fixed, name: value}, torch.device("cpu"))
                step.model.check_size(size, size, where=f"{name}={value}")
        if least := [size for size in examples.get("batch_size", ()) if int(size) < 1]:
            raise LabkitError(f"batch_size={least[0]}: at least 1 is needed.")

    def open(self, path: Path, trials: int, pruner: str, stale_seconds: float) -> None:
        """Opens the journal. Raises `LabkitError` if it is of another sweep."""
        import optuna

        self.path, self.trials, self.stale_seconds = path, trials, stale_seconds
        self.storage = journal.open_to_write(path)
        folder = journal.run_folder(path)
        folder.mkdir(exist_ok=True)
        self.lock = journal.SharedLock(folder / "claims")
        self.watch = Watch(stale_seconds)
        median = optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED, n_warmup_steps=self.recipe.steps // 4)
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # what there is to say is said here
        settings = {
            "data": f"{self.data.name}, {len(self.data.train_a)} pictures of {self.data.size} pixels",
            "model": self.recipe.kind,
            "steps": self.recipe.steps,
            "seed": self.options["seed"],
            "pruner": pruner,
            "stale_seconds": stale_seconds,
            "space": {name: str(searched) for name, searched in sorted(self.space.items())},
        }
        with self.lock.held():
            self.study = optuna.create_study(
                storage=self.storage,
                study_name=journal.STUDY,
                direction="minimize",
                pruner=median if pruner == "median" else optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
            journal.check_same(path, self.study.user_attrs.get("settings", settings), settings)
            self.study.set_user_attr("settings", settings)

    def step(self, params: Mapping[str, Value], device: torch.device) -> Step:
        """The training step with these settings, and weights that the seed determines."""
        settings = {name: value for name, value in params.items() if name not in ("lr", "batch_size")}
        torch.manual_seed(self.options["seed"])
        torch.backends.cudnn.benchmark = True
        made = MODELS[self.recipe.kind](**{**self.recipe.model, **settings}).to(device)
        lr = params.get("lr", self.recipe.lr)
        return make_step(made, lr=None if lr is None else float(lr))

    # ---- one trial after the other

    def work(self, say: Callable[[str], None]) -> None:
        """Trains trials until all are finished. Raises `LabkitError` if the journal cannot be written any more."""
        try:
            self._work(say)
        except OSError as error:
            raise LabkitError(
                f"{error.filename or self.path} cannot be written ({error.strerror or error}). Make room, then run the "
                "same again: trials go on from their checkpoints."
            ) from error

    def _work(self, say: Callable[[str], None]) -> None:
        waits_for: list[int] = []
        while True:
            with self.lock.held():
                claim = self._claim(say)
            if claim is not None:
                self._run(claim, say)
                continue
            running = [trial.number for trial in self._trials() if not trial.state.is_finished()]
            if not running:
                return
            if running != waits_for:
                waits_for = running
                say(self._waiting(running))
            time.sleep(POLL)

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _waiting(self, running: list[int]) -> str:
        signs = {number: read_heartbeat(journal.trial_folder(self.path, number)) for number in running}
        told = [f"{number} ({sign[0].rpartition(' ')[0] if sign else 'given back'})" for number, sign in signs.items()]
        return (
            f"waits for trial {', '.join(told)}; takes over what shows no sign of life for {self.stale_seconds:g} "
            "seconds. Ctrl-C ends this worker and harms nothing."
        )

    def _claim(self, say: Callable[[str], None]) -> Claim | None:
        """The next trial for this worker, if there is one for it at present. Only under the lock."""
        import optuna

        known = self._trials()
        for left in known:
            if not left.state.is_finished() and self.watch.abandoned(journal.trial_folder(self.path, left.number)):
                number, reported = left.number, set(left.intermediate_values)
                study_id = self.storage.get_study_id_from_name(journal.STUDY)
                trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
                trial = optuna.Trial(self.study, trial_id)
                say(f"takes up trial {number}, which nobody trains any more")
                break
        else:
            number, reported = len(known), set()
            if number >= self.trials:
                return None
            if (folder := journal.trial_folder(self.path, number)).exists():
                raise LabkitError(
                    f"{folder} is there already, but {self.path} knows no such trial: the journal is another one, or "
                    "has lost records. Move the folder away, or begin a sweep with another name."
                )
            trial = self.study.ask()
        self.study.sampler = optuna.samplers.TPESampler(seed=(self.options["seed"] + number) % 2**32)
        params = {name: searched.draw(trial, name) for name, searched in self.space.items()}
        folder = journal.trial_folder(self.path, number)
        return Claim(trial, params, folder, Heartbeat(folder, self.stale_seconds), reported)

    def _run(self, claim: Claim, say: Callable[[str], None]) -> None:
        """Trains a trial to its end, and tells the journal."""
        from optuna import TrialPruned
        from optuna.trial import TrialState

        with claim.heartbeat:
            try:
                self._train(claim)
                state, why = TrialState.COMPLETE, ""
            except TrialPruned:
                state, why = TrialState.PRUNED, ""
            except TrainingError as error:  # of these settings; a full disk, for example, is no fault of theirs
                state, why = TrialState.FAIL, str(error)
            except _LostError:
                say(f"trial {claim.trial.number} was taken over, since this worker was silent for too long")
                return
            told = self._tell(claim, state, why)
        say(told)

    def _train(self, claim: Claim) -> None:
        try:
            step = self.step(claim.params, self.device)
        except LabkitError as error:  # each value suits by itself, but not all together
            raise TrainingError(str(error)) from error

        def look(run: Run) -> None:
            if run.done % self.every == 0 and run.done < run.steps:
                self._report(claim, run)

        batch_size = int(claim.params.get("batch_size", 1))
        run = fit(
            step,
            self.data,
            self.recipe.steps,
            batch_size,
            checkpoint=claim.folder,
            report_every=self.every,
            callbacks=[look],
            **self.options,
        )
        self._report(claim, run)

    def _report(self, claim: Claim, run: Run) -> None:
        """Measures quality, and stops a trial that is hopeless or no longer ours."""
        from optuna import TrialPruned

        if not claim.heartbeat.mine:
            raise _LostError
        scores = quality(run.model, self.data)
        if not math.isfinite(scores["fg"]):
            raise TrainingError(f"step {run.done}: the translated pictures are no longer finite numbers.")
        for name in GOAL:
            claim.trial.set_user_attr(name, scores[name])
        if run.done not in claim.reported:  # perhaps a worker did that, and was killed before the next checkpoint
            claim.reported.add(run.done)
            claim.trial.report(max(scores[name] / goal for name, goal in GOAL.items()), run.done)
        if run.done < run.steps and claim.trial.should_prune():
            raise TrialPruned

    def _tell(self, claim: Claim, state: optuna.trial.TrialState, why: str) -> str:
        """Finishes the trial in the journal, unless somebody else has it; what there is to say of it."""
        number = claim.trial.number
        with self.lock.held():
            if not claim.heartbeat.mine:
                return f"trial {number} was taken over, since this worker was silent for too long"
            if why:
                claim.trial.set_user_attr("why", why)
            known = self._trials()[number]
            value = known.intermediate_values[self.recipe.steps] if state.name == "COMPLETE" else None
            told = self.study.tell(number, value, state)
        settings = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in claim.params.items()
        )
        if why:
            return f"trial {number} failed: {settings}: {why}"
        scores = ", ".join(f"{name} {told.user_attrs[name]:.2f} %" for name in GOAL)
        ended = f"stopped at step {known.last_step}" if state.name == "PRUNED" else "complete"
        return f"trial {number} {ended}: {told.value:.3f} ({scores}), {settings}"
