"""The cells that an exercise needs, so that grading need not run the whole notebook."""

import ast
import re
import symtable
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

MAGIC = re.compile(r"^(\s*)([%!].*)$", re.MULTILINE)


def plain(source: str) -> str:
    """A cell's Python: `%%time`, `%matplotlib` and other lines for IPython become comments, `%time f()` becomes `f()`.

    A cell that is Python already stays as it is: a line of it may begin with the operator `%`.
    """
    try:
        ast.parse(source)
    except SyntaxError:
        return MAGIC.sub(r"\1# \2", re.sub(r"^%time +", "", source, flags=re.MULTILINE))
    return source


def needed(cells: list[str], exercise: set[int]) -> list[int]:
    """The places of an exercise's cells, and of those that give a name its value which they use, in order.

    Args:
        cells: the sources of all that may run, down to the check of the exercise, including its own.
        exercise: the places of its answers and its check.
    """
    read, left, found = [names(cell) for cell in cells], [*exercise], {*exercise}
    while left:
        place = left.pop()
        uses = [(name, place) for name in read[place].used] + [(name, len(cells)) for name in read[place].used_later]
        for name, until in uses:
            binding = [other for other in range(until) if name in read[other].bound][-1:]
            changing = [other for other in range(until) if name in read[other].changed and other > (binding or [-1])[0]]
            new = {*binding, *changing} - found
            found |= new
            left += new
    return sorted(found)


class Names(NamedTuple):
    """The names that a cell gives a value, whose objects it changes (``a["b"] = ...``), and reads: at once, or later.

    Later is when a function of the cell is called.
    """

    bound: set[str]
    changed: set[str]
    used: set[str]
    used_later: set[str]


@cache
def names(source: str) -> Names:
    """The names in a cell. There are none in one that is no Python."""
    source = plain(source)
    try:
        table, tree = symtable.symtable(source, "a cell", "exec"), ast.parse(source)
    except SyntaxError:
        return Names(set(), set(), set(), set())
    symbols = table.get_symbols()
    made_here = {name for line in tree.body for name in _made(line)}
    return Names(
        bound={one.get_name() for one in symbols if one.is_assigned() or one.is_imported()},
        changed=set(_changed(tree)),
        used={one.get_name() for one in symbols if one.is_referenced()} - made_here,
        used_later={one.get_name() for scope in _within(table) for one in scope.get_symbols() if one.is_global()},
    )


def _made(line: ast.stmt) -> Iterator[str]:
    """The names that a line of a cell imports or defines: the cell does not need another one for them."""
    if isinstance(line, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in line.names)
    elif isinstance(line, ast.FunctionDef | ast.ClassDef) and not line.decorator_list:
        yield line.name


def _within(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for scope in table.get_children():
        yield scope
        yield from _within(scope)


def _changed(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id
