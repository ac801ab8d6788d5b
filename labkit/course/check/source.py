"""A look at the source of an answer, before it runs: has it a name that changes the check and not the answer?

An answer is a few lines of Python about tensors and numbers. So it may import the packages in `PACKAGES` only, uses
none of the names in `NAMES`, and changes attributes of its own objects only. This stops a program before it has done
anything. A look at what it has done (`guard`) holds less: Python lets a program change all of itself, and a judge in
the same process with it.

It holds as far as the lists do. A way into Python that is on neither list gets through here, and then `guard` notices
most of the changes that it could make, not all. Nor is this a sandbox: it keeps marks honest, while `make grade` keeps
files and the network out of reach.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

PACKAGES = frozenset(
    "__future__ abc bisect cmath collections contextlib copy dataclasses decimal enum fractions functools heapq "
    "itertools json labkit math numbers numpy operator pandas plotly random re statistics string time torch typing "
    "warnings".split()
)
NAMES = frozenset(
    # of Python: they run text as code, reach every object, or end the process
    "exec eval compile globals locals vars setattr delattr open exit quit breakpoint SystemExit "
    "sys os builtins importlib inspect gc ctypes threading _thread subprocess multiprocessing shutil tempfile atexit "
    "mock ThreadPoolExecutor Path pathlib "
    # of Jupyter
    "get_ipython IPython In Out "
    # of PyTorch: they change operations for everyone
    "TorchFunctionMode TorchDispatchMode cpp_extension _C "
    "register_module_forward_hook register_module_forward_pre_hook".split()
)
MEMBERS = NAMES - {"eval"} | {"library", "overrides", "outcome"}  # not to be read from an object, or imported
SPECIAL = frozenset(
    "__init__ __post_init__ __call__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __enter__ __exit__ "
    "__repr__ __str__ __add__ __sub__ __mul__ __name__ __class__ __version__ __all__".split()
)
TUPLES = frozenset("_asdict _fields _make _replace".split())  # of named tuples
FOUND = "{} has no business in an answer: it could change the check itself. An answer with it counts 0 points."


def tampering(source: str | ast.AST) -> str | None:
    """The first reason not to run an answer, in words that name the line, or None if there is none.

    Source that is no Python has no reason: Python will say what is wrong with it.
    """
    try:
        tree = ast.parse(source) if isinstance(source, str) else source
    except SyntaxError:
        return None
    own = set(_bound(tree))
    for node in ast.walk(tree):
        for what in _strange(node, own):
            return f"line {getattr(node, 'lineno', 1)}: {FOUND.format(what)}"
    return None


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names to which a program gives a value, other than by importing them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _strange(node: ast.AST, own: set[str]) -> Iterator[str]:
    """What is strange about one node of the syntax tree of a program, which itself gives values to the names `own`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _module(alias.name)
    elif isinstance(node, ast.ImportFrom):
        yield from _module(node.module or ".")
        for alias in node.names:
            yield from _module(f"{node.module}.{alias.name}")
            yield from _name(alias.name, MEMBERS)
            yield from _hidden(alias.name)
    elif isinstance(node, ast.Name):
        yield from _name(node.id, NAMES)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from _name(node.name, frozenset())
    elif isinstance(node, ast.Attribute):
        yield from _name(node.attr, MEMBERS)
        if ast.unparse(node.value) not in ("self", "cls", "super()"):
            yield from _hidden(node.attr)
        if node.attr == "check":
            yield from _module(f"labkit.{ast.unparse(node)}")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _name(node.value, frozenset())  # as in getattr(function, "__globals__")
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getattr", "attrgetter")):
        for given in node.args:
            yield from _hidden(str(getattr(given, "value", "")))
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        root: ast.expr = node
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and root.id not in own:
            yield f"`{ast.unparse(node)} = ...`, where `{root.id}` is not the answer's own,"


def _hidden(name: str) -> Iterator[str]:
    """An attribute with one underscore, of another than the answer's object: `collections._sys` is the module `sys`."""
    if re.match("_[A-Za-z]", name) and name not in TUPLES:
        yield f"`{name}`"


def _module(name: str) -> Iterator[str]:
    if name.split(".")[0] not in PACKAGES:
        yield f"`import {name.split('.')[0]}`"
    yield from (f"`{part}`" for part in name.split(".") if part in MEMBERS)
    if name.startswith("labkit.") and "check" in name.split("."):
        yield f"`{name.removeprefix('labkit.')}`, the judge,"


def _name(name: str, banned: frozenset[str]) -> Iterator[str]:
    special = name.startswith("__") and name.endswith("__") and name.strip("_") != ""
    if name in banned or special and name not in SPECIAL:
        yield f"`{name}`"
