"""Packages whose names are loaded when they are first used, and are still known to editors and type checkers.

The ``__init__.pyi`` of such a package lists its names, as in SPEC 1 of Scientific Python: type checkers read that file,
and `attach` finds in it where each name is defined. `lazy_loader` does this too, but would be one more requirement.
`after_import` waits for the import of a module that is not ours.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


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
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(str(homes[name])), name)

    return load, lambda: sorted(homes), list(homes)


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
