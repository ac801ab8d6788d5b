"""Put the answers of exercises out of sight in a copy of the packages: a student who reads them does not meet them.

An answer's function or class is replaced by its compressed text, which is unpacked on import: everything that uses it
works as before, on every Python. This holds against reading and searching, not against somebody who unpacks the text or
finds the packages elsewhere. So `labcourse.check` also asks whether an answer is one of theirs.
"""

import ast
import base64
import textwrap
import zlib
from pathlib import Path

from labcourse.check import originality

# Triton compiles a kernel from its text, which it asks `linecache` for.
WITH_TEXT = """import linecache
linecache.cache["<{name}>"] = len({source!r}), None, {source!r}.splitlines(True), "<{name}>"
exec(compile({source!r}, "<{name}>", "exec"))
"""
PACKED = """# An exercise asks for {names}: packed, so that nobody meets it by chance.
exec(__import__("zlib").decompress(__import__("base64").b85decode(
{text}
)))
"""


def answers() -> dict[str, set[str]]:
    """The functions and classes that show the answer of an exercise, by module."""
    found: dict[str, set[str]] = {}
    for path in Path(originality.__file__).parent.glob("notebook_*.py"):
        for name in originality.library_code(path.stem.removeprefix("notebook_")).values():
            module, _, definition = name.rpartition(".")
            found.setdefault(module.replace(".", "/"), set()).add(definition)
    return found


def packed(source: str, names: str) -> str:
    """A program that defines in its own module what `source` defines."""
    text = base64.b85encode(zlib.compress(source.encode(), 9)).decode()
    lines = (f'    "{line}"' for line in textwrap.wrap(text, 100))
    return PACKED.format(names=names, text="\n".join(lines))


def pack_definitions(path: Path, names: set[str]) -> None:
    """Pack the named functions and classes of a module; raises LookupError if it has no such one."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if missing := names - set(found):
        raise LookupError(f"{path} does not define {', '.join(missing)}")
    for node in sorted((found[name] for name in names), key=lambda node: -node.lineno):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        text = "".join(lines[first : node.end_lineno])
        if node.name.endswith("_kernel"):
            text = WITH_TEXT.format(name=node.name, source=text)
        lines[first : node.end_lineno] = [packed(text, node.name)]
    path.write_text("".join(lines), encoding="utf-8")


def pack_module(path: Path) -> None:
    """Pack a whole module but for the line that has to come first in it."""
    source = path.read_text(encoding="utf-8")
    path.write_text("from __future__ import annotations\n\n" + packed(source, path.stem), encoding="utf-8")


def pack(folder: Path) -> None:
    """Pack all answers in a copy of the repository, and all checks, which hold the rest of them."""
    for module, names in answers().items():
        pack_definitions(folder / f"{module}.py", names)
    for path in (folder / "labcourse" / "check").glob("notebook_*.py"):
        pack_module(path)
