"""Sweeps: trials that many processes, on as many machines as there are, take from one file.

The public names, listed in ``__init__.pyi``, are loaded when they are first used. `labkit.sweep` is a function of
labkit itself.
"""

from labkit import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
