"""The packages as answers get them where they are graded: without the checks, and without labkit's own answers."""

import ast
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

from labcourse.check import originality

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("labtrace", "labkit", "labcourse")
NO_CHECKS = '''"""The checks run in another process, and not where answers do: here a check does nothing."""


def __getattr__(name):
    return lambda *answers: None
'''


def copy_packages(folder: Path, code: dict[CodeType, str]) -> None:
    """Copy the packages and the worker to a folder. Functions with this code raise an error in the copy."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "check"))
    checks = folder / "labcourse" / "check" / "__init__.py"
    checks.parent.mkdir()
    checks.write_text(NO_CHECKS, encoding="utf-8")
    worker = folder / "tools" / "grading" / "worker.py"
    worker.parent.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("worker.py"), worker)
    (folder / "data").mkdir()
    for file in {one.co_filename for one in code}:
        path = folder / Path(file).resolve().relative_to(ROOT)
        of_file = {(one.co_name, one.co_firstlineno): name for one, name in code.items() if one.co_filename == file}
        path.write_text(without(path.read_text(encoding="utf-8"), of_file), encoding="utf-8")


def without(source: str, functions: dict[tuple[str, int], str]) -> str:
    """A module whose functions, given by their name and first line, raise an error that names them."""
    lines = source.splitlines()
    for node in sorted(_functions(ast.parse(source)), key=lambda node: -node.lineno):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if name := functions.get((node.name, first)):
            told = originality.LIBRARYS_OWN.format(name)
            lines[node.body[0].lineno - 1 : node.end_lineno] = [
                " " * node.body[0].col_offset + f"raise NotImplementedError({told!r})"
            ]
    return "\n".join(lines) + "\n"


def _functions(tree: ast.AST) -> Iterable[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
