"""The callbacks in docs/watching.md: loggers, with stand-ins for Weights & Biases and MLflow, and early stopping."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import labkit

PAGE = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
WANDB, MLFLOW, PATIENCE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


class StandIn(SimpleNamespace):
    """A module that notes the calls of its functions."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **named: self.calls.append((name, given, named))


@pytest.mark.parametrize(("name", "program"), [("wandb", WANDB), ("mlflow", MLFLOW)])
def test_losses_and_pictures_arrive_with_their_steps(tiny, fruit, tmp_path, monkeypatch, name, program):
    module = StandIn(calls=[], Image=lambda pixels: pixels)
    monkeypatch.setitem(sys.modules, name, module)
    defined = {}
    exec(program, defined)
    (logger,) = [one for one in defined.values() if isinstance(one, type) and issubclass(one, labkit.Callback)]
    step, folder = labkit.make_step(tiny()), tmp_path / "photos"
    run = labkit.fit(step, fruit, 4, checkpoint=folder, report_every=2, sample_every=4, callbacks=[logger()])
    first, last = module.calls[0], module.calls[-1]
    assert first[0] in ("init", "start_run") and "photos" in first[2].values() and last[0] in ("finish", "end_run")
    assert any(run.model.settings in (*given, *named.values()) for _, given, named in module.calls)
    reports = [(given[0], named["step"]) for _, given, named in module.calls if "G_A" in str(given) and "step" in named]
    assert reports == [({n: losses[at - 1] for n, losses in run.losses.items()}, at) for at in (2, 4)]
    (grid,) = [given[0] for called, given, _ in module.calls if called == "log_image" or "samples" in str(given)]
    grid = grid["samples"] if name == "wandb" else grid
    assert grid.shape == (4 * 34 + 2, 4 * 34 + 2, 3)


def test_patience_goes_on_in_a_run_that_resumes(tiny, fruit, tmp_path):
    defined = {}
    exec(PATIENCE, defined)
    first, second = (defined["EarlyStopping"](patience=2) for _ in range(2))
    first.best = 0.0  # no loss is lower
    for stopping, done in ((first, 2), (second, 3)):
        options = dict(checkpoint=tmp_path, report_every=1, callbacks=[stopping])
        assert labkit.fit(labkit.make_step(tiny()), fruit, 9, **options).done == done
