"""Measuring: how long steps take, what limits them, and whether they still compute the same.

The public names, listed in ``__init__.pyi``, are loaded when they are first used. None is called as a module of this
package is: `labkit.compare`, `labkit.record`, `labkit.quality` and `labkit.autotune` are functions of labkit itself.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
