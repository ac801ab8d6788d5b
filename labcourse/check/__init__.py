"""The checks of the notebooks' exercises, one file for each notebook. A check's message names the likely mistake.

The checks, listed in ``__init__.pyi``, are loaded when they are first used: most need neither plotly nor HTA.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
