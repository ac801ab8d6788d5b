"""pyproject.toml, requirements.txt and environment.yml name the same packages in the same ranges."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"pytorch": "torch"}  # conda-forge's name -> PyPI's, where they differ
ONLY_CONDA = {"python", "pip"}


def ranges(lines: list[str]) -> dict[str, str]:
    """PyPI name -> range, failing on a package that is named twice."""
    requirements = [Requirement(line) for line in lines]
    table = {CONDA_NAMES.get(one.name, one.name): str(one.specifier) for one in requirements}
    assert len(table) == len(requirements), f"a package is named twice in {lines}"
    return table


EXTRAS = PROJECT["optional-dependencies"]
EXPECTED = ranges(PROJECT["dependencies"] + EXTRAS["lab"] + EXTRAS["test"])


def environment() -> tuple[list[str], list[str]]:
    """The conda part and the pip part of environment.yml."""
    *conda, last = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert set(last) == {"pip"} and all(isinstance(line, str) for line in conda), "pip's part comes once, and last"
    return conda, last["pip"]


def test_requirements_are_those_of_pyproject():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    assert ranges([line for line in lines if line]) == EXPECTED


def test_environment_is_that_of_pyproject():
    conda, pip = environment()
    found = ranges(conda + [line for line in pip if not line.startswith("-e")])
    assert {name: span for name, span in found.items() if name not in ONLY_CONDA} == EXPECTED
    assert found["python"] == PROJECT["requires-python"]


def test_environment_is_well_formed():
    file = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert set(file) == {"name", "channels", "dependencies"}
    assert file["name"] == PROJECT["name"] and file["channels"] == ["conda-forge"]
    conda, pip = environment()
    assert "pip" in conda, "conda asks for pip itself beside a pip part"
    assert "-e ." in pip, "labkit itself"


def test_holistic_trace_analysis_is_named_where_readers_look_for_it():
    assert "Holistic Trace Analysis (HTA)" in (ROOT / "requirements.txt").read_text()
    assert "HolisticTraceAnalysis" not in EXPECTED
