"""pyproject.toml, requirements.txt and environment.yml name the same packages; public names are theirs alone."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import labkit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"pytorch": "torch"}  # conda-forge's name -> PyPI's, where they differ


def ranges(lines: list[str]) -> dict[str, str]:
    """PyPI name -> range and systems, failing on a package that is named twice."""
    requirements = [Requirement(line) for line in lines]
    table = {CONDA_NAMES.get(one.name, one.name): f"{one.specifier}; {one.marker or ''}" for one in requirements}
    assert len(table) == len(requirements), f"a package is named twice in {lines}"
    return table


OWN = PROJECT["name"] + "["  # an extra that includes another one
EXTRAS = {
    extra: [line for line in lines if not line.startswith(OWN)]
    for extra, lines in PROJECT["optional-dependencies"].items()
}
ALL = ("train", "lab", "export", "log", "score", "test")  # but for the site and the browser
EXPECTED = ranges([*PROJECT["dependencies"], *(line for extra in ALL for line in EXTRAS[extra])])


def environment() -> tuple[str, list[str]]:
    """Python's version and all packages but pip and labkit itself, from environment.yml."""
    file = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert list(file) == ["name", "channels", "dependencies"], "the keys that conda knows"
    assert (file["name"], file["channels"]) == ("labkit", ["conda-forge"])
    python, pip, *conda, last = file["dependencies"]
    assert python.startswith("python=") and pip == "pip", "first Python and pip"
    assert set(last) == {"pip"} and last["pip"][-1] == "-e .", "pip's part comes last, and at its end labkit itself"
    return python.removeprefix("python="), conda + last["pip"][:-1]


def test_requirements_are_those_of_pyproject():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    assert ranges([line for line in lines if line]) == EXPECTED


def test_environment_is_that_of_pyproject():
    python, packages = environment()
    assert ranges(packages) == EXPECTED
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)


def test_locked_versions_are_admitted_by_the_ranges():
    lines = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    locked = {(line.name, str(line.specifier).removeprefix("==")) for line in lines}  # some by version of Python
    assert set(EXPECTED) <= {name for name, _ in locked}, "make lock"
    admitted = {name: SpecifierSet(range_.partition(";")[0]) for name, range_ in EXPECTED.items()}
    assert not [one for one in locked if one[0] in admitted and not admitted[one[0]].contains(one[1], prereleases=True)]


def test_citation_and_changelog_have_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == labkit.__version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == labkit.__version__


def test_no_public_name_is_hidden_by_a_module_of_its_package():
    """Once loaded, a module is an attribute of its package, in the place of a lazily loaded name."""
    for stub in ROOT.glob("lab*/**/__init__.pyi"):
        package = ".".join(stub.parent.relative_to(ROOT).parts)
        modules = {path.stem for path in stub.parent.iterdir()}
        names = re.findall(r"from (\S+) import \w+ as (\w+)", stub.read_text())
        assert names and not [name for home, name in names if home != package and name in modules], stub
