"""The cells that an exercise needs, so that grading need not run the whole notebook."""

import ast
import re
import symtable
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from IPython.core.inputtransformer2 import TransformerManager

TO_PYTHON = TransformerManager().transform_cell
RUNS_ITS_CELL = re.compile(r"\A\s*(?=%%(time|capture|prun)\b)")
RUNS_ITS_LINE = re.compile(r"^(\s*)%time +", re.MULTILINE)
CHANGING_METHODS = frozenset(
    "add append appendleft clear discard extend insert pop popleft popitem remove reverse setdefault sort "
    "update".split()
)
STAR = "*"  # stands for the names of `from math import *`, which are not in the text: any cell may use them


def plain(source: str) -> str:
    """A cell's Python: `!ls`, `f?` and other lines for IPython become the calls that it makes of them.

    Of `%time f()` stays `f()`, and of a cell that begins with `%%time` its other lines. A cell that is Python
    already stays as it is, and so does one that not even IPython understands.
    """
    try:
        ast.parse(source)
    except SyntaxError:
        with suppress(SyntaxError):
            return TO_PYTHON(RUNS_ITS_LINE.sub(r"\1", RUNS_ITS_CELL.sub("# ", source)))
    return source


def needed(cells: list[str], exercise: set[int], own: Collection[int]) -> list[int]:
    """The places of an exercise's cells, and of those that give a name its value which they use, in order.

    Args:
        cells: the sources of all that may run, down to the check of the exercise, including its own.
        exercise: the places of its answers and its check.
        own: the places of cells that are the student's own. We know of the others how they change an object; one of
            these may do so in any way, as `heappush(queue, 3)` does, so that it is needed as soon as it reads the name.
    """
    read, left, found = [names(cell) for cell in cells], [*exercise], {*exercise}
    while left:
        place = left.pop()
        uses = [(name, place) for name in read[place].used] + [(name, len(cells)) for name in read[place].used_later]
        for name, until in uses:
            binding = [other for other in range(until) if name in read[other].bound][-1:]
            after = range(binding[0] + 1 if binding else 0, until)
            changing = {other for other in after if name in read[other].changed}
            if binding and name in read[binding[0]].objects:
                changing |= {other for other in after if other in own and name in read[other].used}
            new = {*binding, *changing} - found
            found |= new
            left += new
    return sorted(found)


class Names(NamedTuple):
    """The names that a cell gives a value, whose objects it changes (``a["b"] = ...``), and reads: at once, or later.

    Of those that it gives a value, `objects` are neither its functions and classes nor imported. Later is when a
    function of the cell is called. A name that the cell gives a value first is not among those it reads at once. A call
    for its effect alone, ``f()``, changes ``f()``: this is what a cell needs whose function ``f`` sets a global name.
    """

    bound: set[str]
    objects: set[str]
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
        return Names(set(), set(), set(), set(), set())
    functions = [*_within(table)]
    setting = {one.get_name() for one in functions if any(name.is_declared_global() for name in one.get_symbols())}
    inner = [name for one in functions for name in one.get_symbols()]
    return Names(
        bound=_bound(table) | {one.get_name() for one in inner if one.is_declared_global() and one.is_assigned()},
        objects={one.get_name() for one in table.get_symbols() if one.is_assigned() and not one.is_namespace()},
        changed=set(_changed(tree)),
        used={*_used(tree.body), STAR},
        used_later={one.get_name() for one in inner if one.is_global()} | {f"{name}()" for name in setting},
    )


def _bound(table: symtable.SymbolTable) -> set[str]:
    return {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}


def _used(lines: list[ast.stmt]) -> Iterator[str]:
    """The names that lines of a cell read before one of them has given the name a value."""
    given: set[str] = set()
    for line in _in_order(lines):
        table = symtable.symtable(ast.unparse(line), "a line", "exec")
        read = {one.get_name() for one in table.get_symbols() if one.is_referenced()}
        yield from (read | (_bound(table) if isinstance(line, ast.AugAssign) else set())) - given
        given |= _bound(table)


def _in_order(lines: list[ast.stmt]) -> Iterator[ast.AST]:
    """Lines in the order they run in, with blocks taken apart: the head of one is read before its first line."""
    for line in lines:
        match line:
            case ast.If(test, body, orelse) | ast.While(test, body, orelse):
                yield from (test, *_in_order(body + orelse))
            case ast.For(target, iterable, body, orelse):
                yield from (ast.Assign([target], iterable, lineno=0), *_in_order(body + orelse))
            case ast.With(items, body):
                for item in items:
                    targets = [item.optional_vars] if item.optional_vars else []
                    yield ast.Assign(targets, item.context_expr, lineno=0)
                yield from _in_order(body)
            case ast.Try(body, handlers, orelse, final):
                handling = [one for handler in handlers for one in handler.body]
                yield from _in_order([*body, *handling, *orelse, *final])
            case _:
                yield line


def _within(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for scope in table.get_children():
        yield scope
        yield from _within(scope)


def _changed(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        root: ast.AST | None = None
        match node:
            case ast.Expr(ast.Call(ast.Name(name))):
                yield f"{name}()"
            case ast.alias("*"):
                yield STAR
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                root = node
            case ast.Expr(ast.Call(ast.Attribute(owner, method))) if method in CHANGING_METHODS:
                root = owner
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name):
            yield root.id
