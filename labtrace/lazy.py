"""Packages whose names are loaded when they are first used, and are still known to editors and type checkers.

The ``__init__.pyi`` of such a package lists its names, as in SPEC 1 of Scientific Python: type checkers read that file,
and `attach` finds in it where each name is defined. `lazy_loader` does this too, but would be one more requirement.
`after_import` waits for the import of a module that is not ours.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from labtrace.errors import did_you_mean, message_alone

PACKAGES = {"PIL": "pillow", "hta": "traceinsight", "IPython": "ipython"}  # where a module's name is not its package's


class NoSuchName(AttributeError):
    """A package has no such public name."""

    _render_traceback_ = message_alone


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for the ``__init__.py`` of a package, given its `__name__` and `__file__`.

    In the stub ``from labkit.data.fruit import fruit as fruit`` is a name of a module, and
    ``from labkit import show as show`` a module itself.
    """
    homes: dict[str, str | None] = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.asname: node.module for alias in node.names if alias.asname}

    def load(name: str) -> Any:
        if name not in homes:
            raise NoSuchName(f"module {package!r} has no attribute {name!r}{did_you_mean(name, [*homes])}")
        try:
            home = importlib.import_module(f"{package}.{name}" if homes[name] == package else str(homes[name]))
        except ModuleNotFoundError as error:
            error.msg = needs(error, f"{package}.{name}") or error.msg
            raise
        return home if homes[name] == package else getattr(home, name)

    return load, lambda: sorted(homes), list(homes)


def needs(error: Exception, what: str) -> str | None:
    """The sentence on a missing module: what needs it, and a command. None for other errors, or if no extra brings it.

    The command names the packages of the extra, since the extras themselves are on no index.
    """
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    installed, extras = importlib.metadata.distributions(name="cyclegan-lab"), dict[str, list[str]]()
    for line in next((each.requires or [] for each in installed), []):  # an editable one is found twice
        if found := re.match(r"([\w-]+)(?:\[(\w+)\])?[^;]*; extra == .(\w+)", line):  # of every system
            extras.setdefault(found[3], []).extend(extras[found[2]] if found[2] else [found[1]])
    lists = [" ".join(names) for names in extras.values() if PACKAGES.get(module, module) in names]
    return f"No module named {module!r}, which {what} needs: pip install {lists[0]}" if lists else None


def after_import(name: str, action: Callable[[Any], None]) -> None:
    """Calls ``action(module)`` when the module of this name has been imported, for the first time."""
    if name in sys.modules:  # as in an environment that imports PyTorch whenever Python starts
        action(sys.modules[name])
        return

    class Finder(importlib.abc.MetaPathFinder):
        asking = False

        def find_spec(self, wanted: str, path: Any, target: Any = None) -> ModuleSpec | None:
            if wanted != name or self.asking:
                return None
            self.asking = True  # so that the other finders answer
            spec = importlib.util.find_spec(name)
            self.asking = False
            if spec and spec.loader:
                load = spec.loader.exec_module

                def load_and_act(module: ModuleType) -> None:
                    # Not in find_spec: libraries ask there whether PyTorch is installed, and import it later.
                    sys.meta_path.remove(self)
                    load(module)
                    action(module)

                spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())
