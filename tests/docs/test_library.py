"""The programs in docs/library.md and docs/extending.md, run as they stand but for fewer steps and smaller networks."""

import functools
import re
from pathlib import Path

import pytest
import torch
from killing import same_weights
from PIL import Image
from tiny import TINY, album_of

import labkit

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "library.md").read_text() + (DOCS / "extending.md").read_text()
PROGRAMS = dict(re.findall(r"^## ([^\n]*)\n+```python\n(.*?)```", PAGES, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_program_runs(title, tmp_path, monkeypatch):
    fit, cyclegan = labkit.fit, labkit.CycleGAN
    runs = []
    if "memory" in title:  # it translates with the run of the program before
        fit(labkit.make_step(cyclegan(**TINY)), labkit.fruit(n=6, size=32), 1, checkpoint=tmp_path / "out" / "photos")

    def shorter(step, data, steps, **options):
        runs.append(fit(step, data, 2, **options, report_every=1))
        return runs[-1]

    monkeypatch.setattr(labkit, "fit", shorter)
    monkeypatch.setattr(labkit, "CycleGAN", lambda **given: cyclegan(**{**TINY, **given, "ngf": 4}))
    monkeypatch.setattr(labkit, "fruit", functools.partial(labkit.fruit, n=6))
    monkeypatch.setattr(labkit, "folders", lambda path, size: labkit.data.folders.folders(path, size=32))
    monkeypatch.chdir(tmp_path)
    album_of(tmp_path / "photos", 2, 36, 40, ("trainA", "trainB", "testA"))
    program = PROGRAMS[title].replace("range(100)", "range(2)").replace("== 50", "== 0").replace("128, 128", "32, 32")
    program = program.replace(" 10_000", " 10")
    defined = {"__name__": "__main__"}
    exec(program, defined)
    untrained = ("Translate in memory", "The step in a loop of your own")
    assert [run.done for run in runs] == ([] if title in untrained else [2])
    if "Another loss" in title:
        assert len(runs[0].losses["smooth_A"]) == 2
    if "changes" in title:

        def falling(steps, folder=None):
            torch.manual_seed(0)
            return fit(labkit.make_step(cyclegan(**TINY), defined["Falling"]), labkit.fruit(), steps, checkpoint=folder)

        falling(2, "again")
        assert same_weights(falling(4, "again").model, falling(4).model)
    if "folders" in title:
        assert (tmp_path / "out" / "translated" / "1.png").exists()
    if "memory" in title:
        assert defined["translated"].shape == (1, 3, 256, 256) and not defined["network"].training
        assert Image.open(tmp_path / "out" / "1.png").size == (256, 256)
    if "loop" in title:
        assert defined["losses"]["G_A"].isfinite() and defined["earlier"].model is not defined["step"].model
