"""Measuring: how long steps take, what limits them, and whether they still compute the same.

The public names are listed in ``__init__.pyi`` and loaded when they are first used. None has the name of a module of
this package: `labkit.compare`, `labkit.record`, `labkit.quality` and `labkit.autotune` are functions of labkit itself.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
