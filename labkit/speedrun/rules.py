"""The rules of the speedrun, and a look at an entry's text for breaks of them, before any of it runs."""

from __future__ import annotations

import ast
import zlib
from collections.abc import Iterator

from labkit.course.check.source import strange
from labkit.errors import LabkitError

LINES, COLUMNS = 80, 120
COMPRESSED = 1600  # bytes: more than 80 lines of program have
LITERALS, LONGEST = 100, 60  # numbers in an entry; characters of a text in it
LIMIT_S = 600.0  # CPU seconds of a training; notebook 01's CycleGAN takes a quarter of it

RULES = {
    "short": f"An entry is one file of at most {LINES} lines of {COLUMNS} characters.",
    "random": "An entry begins with random weights, and brings none with it: the judge exchanges channels.",
    "data": "An entry learns from the batches that its step is given, and reads and writes nothing else.",
    "alone": "An entry starts no processes.",
    "judge": "An entry leaves the judge, the clock, Python, PyTorch and labkit as they are.",
    "weights": "What is judged is the translator with the weights that it has after the last update, and no more.",
    "labkit": "What comes out translates pictures of any size, as labkit.translate and labkit.export need it.",
    "limits": "An entry keeps to the limits of time and memory.",
}

PACKAGES = frozenset(
    "__future__ collections contextlib copy dataclasses functools itertools labkit math random torch typing".split()
)
# The parts of labkit that an entry may build on: all but its pictures and its measuring.
OPEN = ("model", "models", "networks", "optimizers", "pool", "recipes", "step", "training.schedules", "variants")
# Of PyTorch: they read and write files, some of them in C++, where `guard` does not see it.
FILES = frozenset("load save from_file load_library hub jit package export serialization".split())
OPEN_NAMES = frozenset(
    "CycleGAN DeviationGAN Step make_step linear_schedule cosine_schedule step_schedule speedrun to_float".split()
)


class BrokenRule(LabkitError):
    """An entry breaks a rule of the speedrun: its name, as in `RULES`, and how."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"rule {rule!r}: {RULES[rule]} Seen: {seen}.")
        self.rule = rule


def check(source: str) -> None:
    """Raises `BrokenRule` if an entry's text breaks a rule, and `LabkitError` if it is no Python."""
    lines = source.splitlines()
    if len(lines) > LINES:
        raise BrokenRule("short", f"{len(lines)} lines")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            raise BrokenRule("short", f"line {number} has {len(line)} characters")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise LabkitError(f"The entry is no Python: {error}. Correct it.") from error
    _check_literals(source, tree)
    for number, rule, what in _forbidden(tree):
        raise BrokenRule(rule, f"line {number}: {what}".rstrip(","))


def _check_literals(source: str, tree: ast.Module) -> None:
    """Raises `BrokenRule` if an entry holds more numbers or text than a program needs."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    documentation = {id(node.body[0].value) for node in ast.walk(tree) if _is_documented(node)}  # type: ignore[attr-defined]
    for text in texts:
        if isinstance(text.value, str | bytes) and len(text.value) > LONGEST and id(text) not in documentation:
            raise BrokenRule("random", f"line {text.lineno}: a text of {len(text.value)} characters")
    numbers = sum(isinstance(text.value, int | float | complex) for text in texts)
    if numbers > LITERALS:
        raise BrokenRule("random", f"{numbers} numbers, where at most {LITERALS} are allowed")
    for text in texts:
        if isinstance(text.value, int | float) and len(repr(text.value)) > 12:
            raise BrokenRule("random", f"line {text.lineno}: a number of {len(repr(text.value))} characters")
    if (size := len(zlib.compress(source.encode(), 9))) > COMPRESSED:
        raise BrokenRule("random", f"{size} bytes after compression, where at most {COMPRESSED} are allowed")


def _is_documented(node: ast.AST) -> bool:
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None


def _forbidden(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Lines of an entry that do what no entry needs: the number, the rule, and what it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            closed = _closed(node.module or "", [alias.name for alias in node.names])
            yield from ((node.lineno, _rule(name), f"`{name}`") for name in closed)
            yield from ((node.lineno, "data", f"`{alias.name}`") for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, _rule(a.name), f"`{a.name}`") for a in node.names if _closed(a.name, []))
            yield from ((node.lineno, "data", f"`{a.name}`") for a in node.names if FILES & {*a.name.split(".")})
        elif isinstance(node, ast.Attribute):
            whose = ast.unparse(node.value)
            if whose == "labkit":
                yield from ((node.lineno, _rule(name), f"`{name}`") for name in _closed("labkit", [node.attr]))
            if node.attr in FILES:
                yield node.lineno, "data", f"`{whose}.{node.attr}`"
        elif isinstance(node, ast.Name) and node.id == "getattr":
            yield node.lineno, "judge", "`getattr`"
        elif isinstance(node, ast.Match):
            yield node.lineno, "judge", "`match`"
    yield from ((number, "judge", what) for number, what in strange(tree, PACKAGES))


def _closed(module: str, names: list[str]) -> list[str]:
    """The modules and names of labkit in an import that an entry may not have."""
    if module.split(".")[0] != "labkit":
        return []
    if module == "labkit":
        return [f"labkit.{name}" for name in names if name not in OPEN_NAMES and name not in OPEN]
    if module == "labkit.speedrun":
        return [f"{module}.{name}" for name in names if name != "Entry"]
    inside = module.removeprefix("labkit.")
    return [] if any(inside == part or inside.startswith(f"{part}.") for part in OPEN) else [module]


def _rule(name: str) -> str:
    """The rule that a part of labkit is closed by."""
    return "judge" if name.startswith(("labkit.speedrun", "labkit.measure", "labkit.course.check")) else "data"
