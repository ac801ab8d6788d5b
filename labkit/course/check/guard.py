"""While answers are graded: no cell that tampers is run, and the tools of the checks are those from before the answer.

Grading sets the variable LABKIT_CHECK_SEED. Then the import of `labkit.course.check`, in a notebook's locked setup cell
and so before any answer, calls `start`. From there on IPython shows every cell to `tampering` (see `source`) before it
runs it. Each check also compares the functions of Python, PyTorch and labkit with those that the setup cell left,
before and after it has called the answer.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch

from labkit.course.check.cells import needed, plain
from labkit.course.check.source import tampering

SETUP = ("# @title Setup", "ledger = Ledger(")  # begins the cell that finds labkit; stands in the one after it
TOOLS = {"builtins", "math", "random", "statistics", "numpy", "pandas", "torch", "torch.nn", "torch.nn.functional"}
IPYTHONS = {"exit", "quit", "get_ipython", "display"}  # which it puts into builtins while a cell runs
_BEFORE: list[
    tuple[str, Any, dict[str, Any]]
] = []  # name, module or class, its functions; empty where nothing is graded


def start() -> None:
    """Look at every cell from now on, and remember the tools of the checks at the end of the present cell."""
    if get_ipython := getattr(builtins, "get_ipython", None):  # as IPython has it while it runs a cell
        shell = get_ipython()
        shell.ast_transformers.append(Guard())
        shell.events.register("post_run_cell", partial(_remember, shell))


class Guard(ast.NodeTransformer):
    """IPython gives it the syntax tree of a cell before the cell is run."""

    def visit(self, cell: ast.AST) -> ast.AST:
        """The tree as it is. Raises IPython's InputRejected if the cell could change a check."""
        from IPython.core.error import InputRejected

        if found := tampering(cell):
            raise InputRejected(found)
        return cell


def refused() -> str | None:
    """At home, grading's reason why a cell that the present one needs does not count, or None if all of them do."""
    if not (get_ipython := getattr(builtins, "get_ipython", None)):
        return None  # a program
    cells = [plain(cell) for cell in get_ipython().history_manager.input_hist_raw]
    *others, _ = [cells[place] for place in needed(cells, {len(cells) - 1})]
    answers = [cell for cell in others if not cell.startswith(SETUP[0]) and SETUP[1] not in cell]
    return next(filter(None, map(tampering, answers)), None)


def _remember(shell: Any, _result: object) -> None:
    """Load the notebook's checks, as long as no answer can have changed them, and remember the tools of checks."""
    if not _BEFORE:
        importlib.import_module("torch._dynamo")  # puts a function of its own around torch.manual_seed
        importlib.import_module(f"labkit.course.check.notebook_{shell.user_ns['ledger'].notebook}")
        _BEFORE.extend(_tools())


def _tools() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The modules that checks work with, and the classes in them, with their functions and methods."""
    classes: dict[type, str] = {}
    for name, module in list(sys.modules.items()):
        if name in TOOLS or name.startswith("labkit."):
            yield name, module, _functions(module)
            own = [value for value in vars(module).values() if isinstance(value, type)]
            classes |= {one: f"{one.__module__}.{one.__qualname__}" for one in own if _is_checks(one)}
    for one, name in classes.items():
        yield name, one, _functions(one)


def _is_checks(one: type) -> bool:
    return one.__module__.split(".")[0] in ("labkit", "torch", "pandas")


def _functions(owner: Any) -> dict[str, Any]:
    """Everything that can be called, by name, with a Python function's code, which can be replaced on its own, too."""
    called = {name: value for name, value in vars(owner).items() if name not in IPYTHONS and _is_function(value)}
    return {name: (value, getattr(value, "__code__", None)) for name, value in called.items()}


def _is_function(value: object) -> bool:
    return callable(value) or isinstance(value, staticmethod | classmethod | property)


def changed() -> str | None:
    """The full name of a function that is not the one from before the answers, or None where nothing is graded."""
    for owner_name, owner, before in _BEFORE:
        now = _functions(owner)
        names = before if isinstance(owner, ModuleType) else before | now  # modules may load more of theirs
        for name in names:
            if now.get(name) != before.get(name):
                return f"{owner_name}.{name}"
    if _BEFORE and torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack():
        return "PyTorch's way to call operations"
    return None
